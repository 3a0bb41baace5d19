package virtualmachines_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// neverTwice looks at the cluster's processes as long as the test lasts: no two of them are
// VMMs of a guest with the same UUID, which a VM has for its life. Whatever controllers and
// agents say, this is what must not be.
func (v *installed) neverTwice(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	seen := false
	done.Go(func() {
		for ctx.Err() == nil {
			for uuid, names := range guestsThatRun(filepath.Base(filepath.Dir(v.Kubeconfig()))) {
				seen = true
				if len(names) > 1 {
					t.Errorf("the guest %s runs %d times at once: %s", uuid, len(names), strings.Join(names, ", "))
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

// guestsThatRun are the names of VMMs in and below a cgroup by the UUID of their guests.
func guestsThatRun(cgroup string) map[string][]string {
	found := make(map[string][]string)
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil // the pattern is right
	}
	for _, line := range lines {
		content, err := os.ReadFile(line)
		if err != nil {
			continue // it has ended
		}
		var uuid, name string
		args := strings.Split(string(content), "\x00")
		for i, arg := range args[:len(args)-1] {
			switch arg {
			case "-uuid":
				uuid = args[i+1]
			case "-name":
				name = args[i+1]
			}
		}
		places, err := os.ReadFile(filepath.Join(filepath.Dir(line), "cgroup"))
		if err == nil && uuid != "" && strings.HasSuffix(args[0], "qemu-system-x86_64") && strings.Contains(string(places), cgroup) {
			found[uuid] = append(found[uuid], name)
		}
	}
	return found
}
