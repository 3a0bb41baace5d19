package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/test/guest"
)

// TestVMMThatOutlivesItsShim: the kernel ends a VMM with its shim, unless it is told not
// to, which a VMM can do that was taken over. The agent ends it then, before another VM
// gets its user, or the VM is started again over the same disks.
func TestVMMThatOutlivesItsShim(t *testing.T) {
	t.Parallel()
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip(err)
	}
	own := qemusOrSkip(t)[0] // it finds its firmware wherever it is started from
	dir := t.TempDir()
	program := filepath.Join(dir, "qemu")
	script := fmt.Sprintf("#!/bin/sh\nexec %s --pdeathsig clear -- %s \"$@\"\n", setpriv, own.binary)
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	for dir := dir; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	n := newNode(t, nodeOptions{qemu: qemu{"wrapped", program}})
	v := n.boot(pvh(t, "stays", "emulation", guest.PVHOptions{}))
	process := v.get().GetStatus().GetProcess()
	vmm, err := unix.PidfdOpen(int(process.GetVmmPid()), 0)
	n.must(err)
	defer unix.Close(vmm)
	from := v.now()
	n.must(unix.Kill(int(process.GetShimPid()), unix.SIGKILL))
	v.becomes(from, crashed)
	if ended, err := unix.Poll([]unix.PollFd{{Fd: int32(vmm), Events: unix.POLLIN}}, 0); ended != 1 {
		t.Errorf("the VMM has outlived its shim: %v", err)
	}
	n.must(v.start(false))
	v.is(running)
}
