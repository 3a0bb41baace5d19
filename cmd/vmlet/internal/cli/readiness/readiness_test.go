package readiness

import (
	"flag"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

// document is one of those that package capabilities makes in its tests.
func document(t *testing.T, name string) *capabilitiesv1.Capabilities {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "..", "capabilities", "testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	doc := new(capabilitiesv1.Capabilities)
	if err := protojson.Unmarshal(raw, doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

func write(t *testing.T, r Report) string {
	t.Helper()
	var b strings.Builder
	if err := Write(&b, r, 0); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestReport(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(doc *capabilitiesv1.Capabilities)
		ready  bool
	}{
		{name: "healthy", ready: true, change: func(doc *capabilitiesv1.Capabilities) {
			doc.ConfidentialComputing.Sev.Supported = true
			doc.HostDevices = []*capabilitiesv1.HostDeviceResource{
				{Resource: "example.org/absent", Kind: "usb"},
				{Resource: "example.org/nvme", Kind: "pci", External: true, Devices: []string{"0000:e1:00.0"}},
				{Resource: "nvidia.com/T4", Kind: "pci", Devices: []string{"0000:65:00.0"}, Obstacles: []*capabilitiesv1.HostDeviceObstacle{
					{Device: "0000:66:00.0", Reason: "it is bound to nouveau, not to vfio-pci", Remedy: "bind it"},
				}},
			}
			doc.ConfidentialComputing.SevEs.Reason = "the processor has SEV-ES and kvm_amd's parameter sev_es is N: boot with kvm_amd.sev_es=1"
		}},
		{name: "nothing-works"},
		{name: "vmm-fails", change: func(doc *capabilitiesv1.Capabilities) {
			doc.Host.IommuGroups, doc.Host.Vfio = &capabilitiesv1.IommuGroups{Total: 1}, nil
		}},
		{name: "accelerator-fails", ready: true},
		{name: "another-machine", ready: true, change: func(doc *capabilitiesv1.Capabilities) {
			doc.Host.IommuGroups, doc.Host.Vfio = new(capabilitiesv1.IommuGroups), nil
		}},
		{name: "unreadable", ready: true, change: func(doc *capabilitiesv1.Capabilities) {
			if got := passthrough(doc); got != nil {
				t.Errorf("what can't be read is taken for nothing: %v", got)
			}
			doc.Host = nil
			doc.Unknown = append(doc.Unknown, &capabilitiesv1.UnknownFact{Fact: "host.memory", Reason: "/proc/meminfo: permission denied"})
		}},
		{name: "empty", change: func(doc *capabilitiesv1.Capabilities) { doc.Reset() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			from := c.name
			if from == "empty" {
				from = "healthy"
			}
			doc := document(t, from)
			if c.change != nil {
				c.change(doc)
			}
			r := Of(doc)
			if r.Ready != c.ready || Ready(doc) != c.ready {
				t.Errorf("ready: %v", r.Ready)
			}
			got, path := write(t, r), filepath.Join("testdata", c.name+".txt")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s: the report is another one (-update writes it):\n%s", path, got)
			}
		})
	}
}

// TestNarrowTerminal: what can be broken ends where the terminal does.
func TestNarrowTerminal(t *testing.T) {
	r := Report{Head: "h", Sections: []Section{{Title: "S", Checks: []Check{
		{Mark: Warn, Name: "n", Finding: strings.Repeat("word ", 40), Details: []string{strings.Repeat("word ", 40)}, Remedy: strings.Repeat("word ", 40)},
	}}}}
	for terminal, want := range map[int]int{0: 100, 500: 100, 80: 80, 10: 60} {
		var b strings.Builder
		if err := Write(&b, r, terminal); err != nil {
			t.Fatal(err)
		}
		longest := 0
		for line := range strings.Lines(b.String()) {
			longest = max(longest, len(line)-1)
		}
		if longest > want || longest < want-len("word ") {
			t.Errorf("a terminal of %d columns: lines of up to %d, want %d", terminal, longest, want)
		}
	}
}

// TestMissing: how grave it is that a hypervisor can't be used depends on what
// else there is.
func TestMissing(t *testing.T) {
	for _, c := range []struct {
		kvm               capabilitiesv1.State
		kvmErrno          string
		mshv, qemu        capabilitiesv1.State
		wantKVM, wantMSHV Mark
	}{
		{works, "", unusable, works, Pass, Info},
		{unusable, "ENOENT", works, works, Info, Pass},
		{unusable, "ENOENT", unusable, works, Warn, Info},
		{unusable, "EACCES", works, works, Warn, Pass},
		{degraded, "", unusable, works, Warn, Info},
		{unusable, "ENOENT", unusable, unusable, Warn, Info}, // it is the VMM that fails
		{notKnown, "", notKnown, notKnown, Warn, Warn},
	} {
		doc := &capabilitiesv1.Capabilities{
			Hypervisors: []*capabilitiesv1.HypervisorCapabilities{
				{Name: "kvm", Device: "/dev/kvm", State: c.kvm, Errno: c.kvmErrno},
				{Name: "mshv", Device: "/dev/mshv", State: c.mshv, Errno: "ENOENT"},
				{Name: "emulation", State: works},
			},
			Vmms: []*capabilitiesv1.VmmCapabilities{{Name: "qemu", State: c.qemu}}, DefaultHypervisor: "emulation", DefaultVmm: "qemu",
		}
		got := hypervisors(doc)
		if got[0].Mark != c.wantKVM || got[1].Mark != c.wantMSHV {
			t.Errorf("%+v: %s, %s", c, got[0].Mark, got[1].Mark)
		}
	}
}

// TestHostile: what programs and devices say can't change the terminal.
func TestHostile(t *testing.T) {
	r := Report{
		Head: "a\x1b[2Jb", Verdict: "v\x07\n",
		Sections: []Section{{"S", []Check{{Warn, "n\x1b", "f\x9b1m\r\nPASS forged", []string{"d\x1b]0;x"}, "r\u202e"}}}},
	}
	got := write(t, r)
	if strings.ContainsAny(got, "\x1b\x07\r\u009b\u202e") || strings.Contains(got, "\nPASS") {
		t.Errorf("%q", got)
	}
}

// TestWrapped: no line is too long but for a word that is.
func TestWrapped(t *testing.T) {
	long := strings.Repeat("word ", 60) + strings.Repeat("x", 150)
	got := write(t, Report{Sections: []Section{{"S", []Check{{Pass, "n", long, []string{long}, long}}}}})
	for line := range strings.Lines(got) {
		if len(strings.TrimRight(line, "\n")) > widest && strings.Contains(strings.TrimSpace(line), " ") {
			t.Errorf("%q", line)
		}
	}
	if n := strings.Count(got, "word"); n != 3*60 {
		t.Errorf("%d words", n)
	}
}

func TestNodesWithLessMemoryThanTheMachine(t *testing.T) {
	doc := &capabilitiesv1.Capabilities{Host: &capabilitiesv1.HostCapabilities{
		MemoryBytes: 24 << 30, NumaNodes: []*capabilitiesv1.NumaNode{{MemoryBytes: 10 << 30}, {Id: 1, MemoryBytes: 2 << 30}},
	}}
	details := memory(doc)[0].Details
	if want := "together 12 GiB, and the machine has 24 GiB: the kernel says both"; details[len(details)-1] != want {
		t.Errorf("the details are %q, want the last to be %q", details, want)
	}
	doc.Host.MemoryBytes = 12 << 30
	if details = memory(doc)[0].Details; len(details) != 2 {
		t.Errorf("nodes that add up have the details %q, want one for each", details)
	}
}
