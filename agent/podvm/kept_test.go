package podvm

import (
	"encoding/json"
	"testing"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/agent/vm"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
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
		h := &placement{conn: proc}
		l, err := h.kept(proc.welcome)
		if err != nil {
			return
		}
		if l.RunID != "its own" || l.UID != 0 || l.Device != "" || l.Memory != "" || len(l.VFIO) > 0 || len(l.Cgroup.Paths) > 0 {
			t.Errorf("%+v has what only the agent knows", l)
		}
		if i, err := vm.ImageOf(&l.Manifest, "kept"); err == nil && i.Spec == nil {
			t.Error("no specification")
		}
	})
}

// fuzzedShim answers nothing but what it has said at first.
type fuzzedShim struct {
	place.Shim
	welcome shim.Welcome
}

func (s *fuzzedShim) Welcome() shim.Welcome { return s.welcome }

// TestPodNotesAreNotTaken: nobody plugs devices into a pod's VM, whatever its shim says,
// neither when it is adopted nor when the connection is made anew.
func TestPodNotesAreNotTaken(t *testing.T) {
	w := newWorld(t)
	n := newFakeNode(w)
	first := w.start()
	n.servePod(t, first)
	proc := n.container()
	vmtest.Eventually(t, "it runs", first.is(lifecycle.Running))
	first.end()
	proc.Mu.Lock()
	proc.Notes = []json.RawMessage{[]byte(`{"attached":{"disk":{"name":"x"}},"complete":{"disk":{"name":"x","path":"../../etc/shadow"}}}`)}
	proc.Mu.Unlock()
	second := w.start()
	n.servePod(t, second)
	vmtest.Eventually(t, "it is adopted", second.is(lifecycle.Running))
	for _, m := range second.All() {
		vm := m.Snapshot()
		if disks := append(vm.GetSpec().GetDisks(), vm.GetStatus().GetEffectiveSpec().GetDisks()...); len(disks) > 0 {
			t.Errorf("it has %v", disks)
		}
	}
}
