package capabilities

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protojson"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares a document's ProtoJSON with a file; the machine's folder is
// ROOT in it.
func golden(t *testing.T, m *machine, name string, doc *capabilitiesv1.Capabilities) {
	t.Helper()
	raw, err := protojson.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, raw, "", "  "); err != nil {
		t.Fatal(err)
	}
	got := append(bytes.ReplaceAll(indented.Bytes(), []byte(m.root), []byte("ROOT")), '\n')
	path := filepath.Join("testdata", name+".json")
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: the document is another one (-update writes it):\n%s", path, got)
	}
}

func TestDocument(t *testing.T) {
	for name, change := range map[string]func(m *machine, s *Sources){
		"healthy": func(*machine, *Sources) {},
		"nothing-works": func(m *machine, s *Sources) {
			m.kvm.status, m.kvm.more = refused(unix.EACCES), nil
			m.kvm.missing = []*capabilitiesv1.UnknownFact{{Fact: "hypervisors.kvm", Reason: "/dev/kvm: permission denied (EACCES)"}}
			m.qemu.err = notInstalled("/nowhere/qemu-system-x86_64")
			s.DefaultHypervisor = "kvm"
		},
		"vmm-fails": func(m *machine, s *Sources) {
			m.qemu.err = context.DeadlineExceeded
			s.DefaultHypervisor = "hyperwave"
		},
		"accelerator-fails": func(m *machine, s *Sources) {
			a := m.qemu.info.Capabilities.Accelerators[0]
			a.Usable, a.Reason, a.CpuModels, a.HostCpuModel, a.CpuFeatures = false, "QEMU ended with exit code 1", nil, nil, nil
		},
		"another-machine": func(m *machine, s *Sources) { s.ThisMachine = false },
		"unreadable": func(m *machine, s *Sources) {
			m.must(os.RemoveAll(m.path("sys/kernel/mm/ksm")))
			m.must(os.RemoveAll(m.path("sys/module")))
			m.must(os.RemoveAll(m.path("sys/kernel/iommu_groups")))
			m.must(os.Symlink("iommu_groups", m.path("sys/kernel/iommu_groups"))) // a ring
			m.write("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "perhaps\n")
			m.write("proc/sys/kernel/sched_rt_runtime_us", "soon\n")
			m.must(os.Remove(m.path("proc/sys/kernel/hostname")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			s := m.sources()
			change(m, &s)
			doc := m.collect(s)
			golden(t, m, name, doc)
			if again := m.collect(s); !Equal(doc, again) {
				t.Error("the same machine's second document differs")
			}
		})
	}
}

// TestCollectEnds: a document that was given up is none.
func TestCollectEnds(t *testing.T) {
	m := newMachine(t)
	ctx, cancel := context.WithCancel(context.Background())
	m.kvm.hook = cancel
	doc, err := Collect(ctx, m.sources())
	if err == nil || doc != nil {
		t.Fatalf("a document (%v) and the error %v", doc != nil, err)
	}
	m.kvm.hook = nil
	m.collect(m.sources())
	if tries, _ := m.kvm.counts(); tries != 2 {
		t.Errorf("a trial that was given up was kept: tried %d times", tries)
	}
}

func TestEqual(t *testing.T) {
	doc := func(speed uint64, state capabilitiesv1.State) *capabilitiesv1.Capabilities {
		return &capabilitiesv1.Capabilities{Hypervisors: []*capabilitiesv1.HypervisorCapabilities{{Name: "kvm", State: state, InstructionsPerSecond: speed}}}
	}
	works, unusable := capabilitiesv1.State_STATE_WORKS, capabilitiesv1.State_STATE_UNUSABLE
	if !Equal(doc(1, works), doc(2, works)) {
		t.Error("the speed of a trial makes a difference")
	}
	if Equal(doc(1, works), doc(1, unusable)) || Equal(nil, doc(1, works)) || !Equal(nil, nil) {
		t.Error("documents are not told apart")
	}
}
