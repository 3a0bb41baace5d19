package virtualmachines_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmlet/vmlet/test/guest"
)

// witnessed is a VM that is watched from outside: what its guest writes to its disk, and which processes
// have that open. Nothing of it is vmlet's word, or the API server's.
type witnessed struct {
	name    string
	content *os.File // of its disk
	disk    inode
	vmm     int // that had it last; the watcher's alone

	mu      sync.Mutex
	history chaosHistory
}

// witness finds a VM's disk, once its claim is bound.
func (v *installed) witness(t *testing.T, name string) *witnessed {
	t.Helper()
	var volume corev1.PersistentVolume
	v.eventually(t, func() bool {
		claim := v.claims(t)[name]
		return claim != "" && v.api.Get(v.ctx, client.ObjectKey{Name: claim}, &volume) == nil && volume.Spec.CSI != nil
	}, func() string { return "the claim " + name + " gets no volume" })
	path := v.Path("/var/lib/csi-loop/" + volume.Spec.CSI.VolumeHandle + "/content")
	content, err := os.Open(path)
	must(t, err)
	t.Cleanup(func() { _ = content.Close() })
	disk, _ := inodeOf(path)
	return &witnessed{name: name, content: content, disk: disk}
}

// watch looks at VMs as long as the test lasts.
func (c *chaos) watch(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			all := c.runningVMMs()
			for _, vm := range c.vms {
				vm.look(all)
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
}

// look notes what the guest has written, and whether another VMM has it.
func (w *witnessed) look(all []vmmProcess) {
	e := chaosEvent{}
	if pids := writersOf(all, w.disk); len(pids) == 1 && pids[0] != w.vmm {
		w.vmm, e.vmm = pids[0], pids[0]
	}
	w.note(e)
}

// note adds an event, and before it what the guest has written until now.
func (w *witnessed) note(e chaosEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now, err := guest.ReadWitness(w.content); err == nil { // else it has written nothing yet, or is just writing
		w.history = w.history.add(chaosEvent{wrote: now})
	}
	if e != (chaosEvent{}) {
		w.history = append(w.history, e)
	}
}

// last is what the guest has written.
func (w *witnessed) last() (last guest.Witness) {
	w.note(chaosEvent{})
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.history {
		if e.wrote.Boot != "" {
			last = e.wrote
		}
	}
	return last
}

// faults are those of the guest until now.
func (w *witnessed) faults() []string {
	w.note(chaosEvent{})
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.history.judge()
}

// String is the guest's history.
func (w *witnessed) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := w.name + ":"
	for _, e := range w.history {
		switch {
		case e.ends != "":
			text += "\n  it may boot: " + e.ends
		case e.vmm != 0:
			text += fmt.Sprintf("\n  process %d has its disk", e.vmm)
		case e.whole != "":
			text += "\n  it goes on: " + e.whole
		default:
			text += fmt.Sprintf("\n  boot %s has written %d %s", e.wrote.Boot, e.wrote.Count, e.wrote.Intrusion)
		}
	}
	return text
}
