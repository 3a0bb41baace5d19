package limits

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/shim"
)

// TestAllowLocking: what is started afterwards may lock so much.
func TestAllowLocking(t *testing.T) {
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &before); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &before) })
	low := unix.Rlimit{Cur: 64 << 10, Max: before.Max}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &low); err != nil {
		t.Fatal(err)
	}
	if err := AllowLocking(0); err != nil {
		t.Fatal(err)
	}
	for _, wanted := range []uint64{4 << 20, 3 << 30} {
		if err := AllowLocking(wanted); err != nil {
			// Above the hard limit that needs CAP_SYS_RESOURCE.
			var known *shim.Error
			if before.Max >= wanted || !errors.As(err, &known) || known.Field != "hostDevices" || !strings.Contains(known.Message, strconv.FormatUint(wanted, 10)) {
				t.Error(err)
			}
			continue
		}
		out, err := exec.Command("sh", "-c", "ulimit -l").Output()
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(string(out)); got != strconv.FormatUint(wanted/1024, 10) {
			t.Errorf("a child may lock %s KiB, want %d", got, wanted/1024)
		}
	}
}

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
		if err := GiveUpCapabilities(); err != nil {
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
