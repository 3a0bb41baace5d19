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

	mu      sync.Mutex
	history chaosHistory
}

// witness begins to watch a VM's disk once its claim is bound, and does so as long as the test lasts.
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
	w := &witnessed{name: name, content: content}
	w.disk, _ = inodeOf(path)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			w.note(chaosEvent{})
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	t.Cleanup(func() { cancel(); done.Wait(); _ = content.Close() })
	return w
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
		case e.whole != "":
			text += "\n  it goes on: " + e.whole
		default:
			text += fmt.Sprintf("\n  boot %s has written %d %s", e.wrote.Boot, e.wrote.Count, e.wrote.Intrusion)
		}
	}
	return text
}
