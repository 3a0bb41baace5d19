package overhead_test

import (
	"errors"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/hypervisor/standard"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm/overhead"
	"github.com/vmlet/vmlet/vmm/qemu"
	vmmstandard "github.com/vmlet/vmlet/vmm/standard"
)

const mib = 1 << 20

// request completes a specification as the agent does.
func request(t testing.TB, name, vmm, arch, yaml string) overhead.Request {
	t.Helper()
	s, err := spec.Parse([]byte("name: a\n"+yaml), "test")
	if err != nil {
		t.Fatal(err)
	}
	registry := standard.Registry()
	h, ok := registry.Get(name)
	if !ok {
		t.Fatalf("no hypervisor %s", name)
	}
	target := spec.Target{ID: "id", Hypervisor: name, VMM: vmm, Arch: arch}
	if vmm == spec.VMMQEMU {
		target.Defaults = new(qemu.QEMU).Defaults(arch)
	}
	s = spec.Default(s, target, registry.Layers())
	v, ok := vmmstandard.Registry().Get(vmm)
	if !ok {
		t.Fatalf("no VMM %s", vmm)
	}
	return overhead.Request{Spec: s, Hypervisor: h, VMM: v, Arch: arch}
}

func of(t testing.TB, r overhead.Request) *overhead.Breakdown {
	t.Helper()
	b, err := overhead.Of(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// measuredFile is what `go run ./test/bench -only overhead` printed.
const measuredFile = "testdata/measured.md"

// row is one VM that was measured.
type row struct {
	text, hypervisor       string
	vcpus, ram, disks, nic int
	devices                bool
	cost                   uint64 // bytes, a save included where one was made
}

func measured(t *testing.T) (rows []row) {
	text, err := os.ReadFile(measuredFile)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		if i < 2 {
			continue // the header
		}
		var cells []string
		for _, c := range strings.Split(strings.Trim(line, "| "), "|") {
			cells = append(cells, strings.TrimSpace(c))
		}
		if len(cells) != 13 {
			t.Fatalf("%s:%d: %d cells", measuredFile, i+1, len(cells))
		}
		number := func(i int) int {
			n, err := strconv.Atoi(cells[i])
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			return n
		}
		kib := number(11)
		if cells[12] != "–" {
			kib = max(kib, number(12))
		}
		rows = append(rows, row{line, cells[0], number(2), number(3), number(5), number(6), cells[7] == "yes", uint64(kib) << 10})
	}
	if len(rows) < 18 {
		t.Fatalf("%d rows", len(rows))
	}
	return rows
}

func (r row) yaml() string {
	var b strings.Builder
	b.WriteString("cpu: {cores: " + strconv.Itoa(r.vcpus) + "}\nmemory: {size: " + strconv.Itoa(r.ram) + "Mi}\n")
	if !r.devices {
		b.WriteString("devices: {guestAgent: false, entropy: false, balloon: false}\n")
	}
	b.WriteString("disks: [" + strings.Repeat("{path: /a},", r.disks) + "]\n")
	b.WriteString("networks: [" + strings.Repeat("{user: {}},", r.nic) + "]\n")
	return b.String()
}

// TestModelCoversMeasured: never less than a VM took, and never twice as much.
func TestModelCoversMeasured(t *testing.T) {
	for _, r := range measured(t) {
		b := of(t, request(t, r.hypervisor, "qemu", "amd64", r.yaml()))
		if b.Total < r.cost || b.Total > 2*r.cost {
			t.Errorf("%d MiB are reckoned and %d were measured: %s", b.Total/mib, r.cost/mib, r.text)
		}
	}
}

func TestDocumentHasMeasured(t *testing.T) {
	document, err := os.ReadFile("../../docs/overhead.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range measured(t) {
		if !strings.Contains(string(document), r.text) {
			t.Errorf("not in docs/overhead.md: %s", r.text)
		}
	}
}

func TestMoreCostsMore(t *testing.T) {
	cost := func(name, vmm, arch, yaml string) uint64 { return of(t, request(t, name, vmm, arch, yaml)).Total }
	for _, c := range []struct{ name, vmm, arch, less, more string }{
		{"kvm", "qemu", "amd64", "", "cpu: {cores: 64}"},
		{"kvm", "qemu", "amd64", "", "memory: {size: 64Gi}"},
		{"kvm", "qemu", "amd64", "memory: {size: 64Gi, hugePages: {pageSize: 2Mi}}", "memory: {size: 64Gi}"},
		{"kvm", "qemu", "amd64", "disks: [{path: /a}]", "disks: [{path: /a}, {path: /b}, {path: /c}]"},
		{"kvm", "qemu", "amd64", "", "cloudInit: {userData: x}\nnetworks: [{}, {}]"},
		{"kvm", "qemu", "amd64", "disks: [{path: /a}]", "disks: [{path: /a}]\nboot: {firmware: uefi}"},
		{"kvm", "qemu", "amd64", "devices: {balloon: false, entropy: false, guestAgent: false}", "devices: {vsock: {cid: 3}, watchdog: {}}"},
		{"emulation", "qemu", "amd64", "", "cpu: {cores: 64}"},
		{"kvm", "qemu", "amd64", "", "devices: {video: {}}"},
		{"kvm", "qemu", "amd64", "disks: [{path: /a}]", "disks: [{path: /a, bus: usb}]"},
		{"kvm", "qemu", "amd64", "devices: {inputs: [{bus: virtio}]}", "devices: {inputs: [{}]}"},
		{"kvm", "cloud-hypervisor", "arm64", "", "cpu: {cores: 64}"},
	} {
		if less, more := cost(c.name, c.vmm, c.arch, c.less), cost(c.name, c.vmm, c.arch, c.more); less >= more {
			t.Errorf("%s %s: %q costs %d, %q %d", c.name, c.vmm, c.less, less, c.more, more)
		}
	}
	if on := cost("kvm", "qemu", "arm64", "disks: [{path: /a}]"); on < cost("kvm", "qemu", "amd64", "disks: [{path: /a}]")+100*mib {
		t.Errorf("arm64's flash is not counted: %d", on)
	}
}

func TestOptions(t *testing.T) {
	r := request(t, "kvm", "qemu", "amd64", "memory: {size: 4Gi}")
	plain := of(t, r)
	if plain.Total != plain.Limit || plain.PodRequest() != 4<<30+plain.Total || plain.Total%mib != 0 {
		t.Errorf("%+v", plain)
	}
	r.Ratio = 2
	if twice := of(t, r); twice.Total < 2*plain.Total-2*mib || twice.Total > 2*plain.Total {
		t.Errorf("twice %d is %d", plain.Total, twice.Total)
	}
	r.Ratio = 0
	r.Spec.HostDevices = []*specv1.HostDevice{{}, {}}
	if b := of(t, r); b.Total < plain.Total+8*mib || len(b.Parts) != len(plain.Parts)+1 {
		t.Errorf("devices cost %d over %d", b.Total, plain.Total)
	}
	r.Fixed = 220*mib - 1
	if b := of(t, r); b.Total != 220*mib || b.Limit != 220*mib || len(b.Parts) != 1 || b.Parts[0].Basis != overhead.Configured {
		t.Errorf("a configured figure became %+v", b)
	}
	for _, ratio := range []float64{-1, math.NaN(), math.Inf(1), 101} {
		r.Ratio = ratio
		if _, err := overhead.Of(r); err == nil {
			t.Errorf("the ratio %v was taken", ratio)
		}
	}
}

// Under emulation a guest that runs much code makes the VMM grow: a limit has to leave room for it.
func TestLimitOfEmulation(t *testing.T) {
	b := of(t, request(t, "emulation", "qemu", "amd64", ""))
	if b.Limit < b.Total+512*mib || b.PodLimit() != b.Memory+b.Limit {
		t.Errorf("total %d, limit %d", b.Total, b.Limit)
	}
}

func TestHugePagesAreAskedForByThemselves(t *testing.T) {
	b := of(t, request(t, "kvm", "qemu", "amd64", "memory: {size: 4Gi, hugePages: {pageSize: 2Mi}}"))
	if b.PodRequest() != b.Total || b.HugePages != 2*mib {
		t.Errorf("%+v requests %d", b, b.PodRequest())
	}
}

// TestBasis: what was never measured says so.
func TestBasis(t *testing.T) {
	for _, c := range []struct {
		hypervisor, vmm, part string
		want                  overhead.Basis
	}{
		{"kvm", "qemu", "VMM", overhead.Measured},
		{"kvm", "qemu", "kvm", overhead.Measured},
		{"kvm", "cloud-hypervisor", "VMM", overhead.Estimated},
		{"mshv", "qemu", "mshv", overhead.Estimated},
		{"emulation", "qemu", "translated code", overhead.Measured},
		{"kvm", "qemu", "page tables", overhead.Calculated},
	} {
		found := false
		for _, p := range of(t, request(t, c.hypervisor, c.vmm, "amd64", "")).Parts {
			if p.Name == c.part {
				found = true
				if p.Basis != c.want {
					t.Errorf("%s with %s: %s is %s, want %s", c.hypervisor, c.vmm, p.Name, p.Basis, c.want)
				}
			}
			if p.Limit < p.Bytes || p.Bytes == 0 {
				t.Errorf("%+v", p)
			}
		}
		if !found {
			t.Errorf("%s with %s has no part %s", c.hypervisor, c.vmm, c.part)
		}
	}
}

func TestFaults(t *testing.T) {
	r := request(t, "kvm", "qemu", "amd64", "")
	var faults spec.FieldErrors
	r.Spec.Memory.Size = "lots"
	if _, err := overhead.Of(r); !errors.As(err, &faults) || faults[0].Field != "memory.size" {
		t.Errorf("memory: %v", err)
	}
	r.Spec.Memory = &specv1.Memory{Size: "1Gi", HugePages: &specv1.HugePages{PageSize: "3Mi"}}
	if _, err := overhead.Of(r); !errors.As(err, &faults) || faults[0].Field != "memory.hugePages.pageSize" {
		t.Errorf("huge pages: %v", err)
	}
	if _, err := overhead.Of(overhead.Request{}); err == nil {
		t.Error("nothing at all was reckoned")
	}
	// A hypervisor that says nothing of memory, and the largest specification there is.
	r = request(t, "kvm", "qemu", "amd64", "memory: {size: 8191Pi}")
	r.Hypervisor = plain{}
	if b := of(t, r); b.PodRequest() < b.Memory {
		t.Errorf("the sum ran over: %+v", b)
	}
}

type plain struct{ hypervisor.Hypervisor }

func (plain) Name() string { return "plain" }
