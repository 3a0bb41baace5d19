package server

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestGiveUpCapabilities: what root's runtime or service manager has left in the sets that
// a change of user leaves goes, too.
func TestGiveUpCapabilities(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, who has capabilities")
	}
	status := make(chan string)
	go func() {
		defer close(status)
		runtime.LockOSThread() // and ends with its thread, which is spoilt
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var sets [2]unix.CapUserData
		if err := unix.Capget(&header, &sets[0]); err != nil {
			t.Error(err)
		}
		sets[0].Inheritable = 1 << unix.CAP_KILL
		if err := unix.Capset(&header, &sets[0]); err != nil {
			t.Error(err)
		}
		if err := giveUpCapabilities(); err != nil {
			t.Error(err)
		}
		b, err := os.ReadFile("/proc/thread-self/status")
		if err != nil {
			t.Error(err)
		}
		status <- string(b)
	}()
	const none = "\t0000000000000000\n"
	got := <-status
	for _, set := range []string{"CapInh:", "CapBnd:"} {
		if !strings.Contains(got, set+none) {
			t.Errorf("%s is not empty: %s", set, got)
		}
	}
	if strings.Contains(got, "CapEff:"+none) {
		t.Error("the thread itself can't start a VMM any more")
	}
}
