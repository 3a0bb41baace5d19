package agent

import (
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/vmlet/vmlet/agent/lifecycle"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/shim"
)

// FuzzKept: what a shim in a pod has kept for the next agent is the pod's word.
func FuzzKept(f *testing.F) {
	f.Add([]byte(`{"runId":"x","uid":0,"vmm":"qemu","cgroup":{"version":1,"paths":{"memory":"/"}},"memory":"/etc/passwd","device":"/dev/sda"}`))
	f.Add([]byte(`{"manifest":{"vmm":{"version":"1"},"specification":{},"planExtras":{"id":""}},"start":null}`))
	f.Add([]byte(`null`))
	f.Add([]byte(``))
	f.Fuzz(func(t *testing.T, kept []byte) {
		proc := &fuzzedShim{welcome: shim.Welcome{Keep: kept, Pod: &shim.Pod{RunDir: "/run/vmlet", RunID: "its own"}}}
		h := &podPlacement{conn: proc}
		l, err := h.kept(proc.welcome)
		if err != nil {
			return
		}
		if l.RunID != "its own" || l.UID != 0 || l.Device != "" || l.Memory != "" || len(l.VFIO) > 0 || len(l.Cgroup.Paths) > 0 {
			t.Errorf("%+v has what only the agent knows", l)
		}
		if i, err := imageOf(&l.Manifest, "kept"); err == nil && i.spec == nil {
			t.Error("no specification")
		}
	})
}

// fuzzedShim answers nothing but what it has said at first.
type fuzzedShim struct {
	Shim
	welcome shim.Welcome
}

func (s *fuzzedShim) Welcome() shim.Welcome { return s.welcome }

// FuzzNotes: so are the notes of devices that have come and gone.
func FuzzNotes(f *testing.F) {
	f.Add([]byte(`{"detached":"root"}`))
	f.Add([]byte(`{"attached":{"disk":{"name":"a"}},"complete":{"disk":{"name":"a","path":"/a"}}}`))
	f.Add([]byte(`{"attached":{"network":{"name":"a"}},"complete":{"disk":{"name":"a"}}}`))
	f.Add([]byte(`{"attached":{"disk":null},"complete":{"disk":null}}`))
	f.Fuzz(func(t *testing.T, note []byte) {
		vm := &nodev1.VirtualMachine{
			Spec:   &specv1.VirtualMachineSpec{Disks: []*specv1.Disk{{Name: "root", Path: "/root"}}},
			Status: &nodev1.VirtualMachineStatus{EffectiveSpec: &specv1.VirtualMachineSpec{Disks: []*specv1.Disk{{Name: "root", Path: "/root"}}}},
		}
		replay(vm, []json.RawMessage{note, note}, slog.New(slog.DiscardHandler))
		for _, s := range []*specv1.VirtualMachineSpec{vm.Spec, vm.Status.EffectiveSpec} {
			if n := len(s.GetDisks()) + len(s.GetNetworks()); n > 2 {
				t.Errorf("%d devices after one note, twice", n)
			}
		}
	})
}

// TestPodNotesAreNotTaken: nobody plugs devices into a pod's VM, whatever its shim says,
// neither when it is adopted nor when the connection is made anew.
func TestPodNotesAreNotTaken(t *testing.T) {
	w := newWorld(t)
	n := newFakeNode(w)
	first := w.start()
	n.servePod(t, first)
	proc := n.container()
	come(t, "it runs", first.is(lifecycle.Running))
	first.end()
	proc.mu.Lock()
	proc.notes = []json.RawMessage{[]byte(`{"attached":{"disk":{"name":"x"}},"complete":{"disk":{"name":"x","path":"../../etc/shadow"}}}`)}
	proc.mu.Unlock()
	second := w.start()
	n.servePod(t, second)
	come(t, "it is adopted", second.is(lifecycle.Running))
	for _, m := range second.All() {
		vm := m.snapshot()
		if disks := append(vm.GetSpec().GetDisks(), vm.GetStatus().GetEffectiveSpec().GetDisks()...); len(disks) > 0 {
			t.Errorf("it has %v", disks)
		}
	}
}
