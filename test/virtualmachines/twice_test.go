package virtualmachines_test

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// neverTwice looks at the cluster's processes as long as the test lasts: no two of them are VMMs of one
// guest, or write to one disk. Whatever controllers and agents say, this is what must not be, except while a VM is renewed:
// two VMMs have its disks then, of which one waits.
func (v *installed) neverTwice(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	seen := false
	done.Go(func() {
		for ctx.Err() == nil {
			before, all := v.renewing.Load(), v.runningVMMs()
			seen = seen || len(all) > 0
			if !before && !v.renewing.Load() {
				for _, fault := range runTwice(all) {
					t.Error(fault)
					return
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		done.Wait()
		if !seen && !t.Failed() {
			t.Error("no VMM of the cluster was seen in all that time")
		}
	})
}

// runningVMMs are those on all nodes.
func (v *installed) runningVMMs() []vmmProcess {
	return vmmsIn(filepath.Base(filepath.Dir(v.Kubeconfig())))
}
