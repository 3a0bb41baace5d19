package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// TestShimIsNotRead: in a pod the VMM is of the shim's user. What it has been broken
// into by a guest it is not to get at the shim by.
func TestShimIsNotRead(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to run a container's program as another user")
	}
	p := newPodScene(t)
	p.container()
	p.connect()
	other := exec.Command("sleep", "600")
	other.SysProcAttr = p.command().SysProcAttr
	p.check(other.Start())
	defer func() {
		_ = other.Process.Kill()
		_ = other.Wait()
	}()
	for _, c := range []struct {
		what  string
		pid   int
		reads bool
	}{{"the shim", p.shimPID, false}, {"another process of that user", other.Process.Pid, true}} {
		for _, file := range []string{"environ", "maps", "fd/0", "root"} {
			err := p.reads(fmt.Sprintf("/proc/%d/%s", c.pid, file))
			if (err == nil) != c.reads {
				t.Errorf("user %d looks at %s of %s: %v; that it can is to be %v", p.uid, file, c.what, err, c.reads)
			}
		}
	}
}

// reads looks at a file of /proc as the container's user; the kernel lets who may
// trace the process.
func (p *podScene) reads(path string) error {
	cmd := exec.Command("sh", "-c", `if [ -L "$1" ]; then readlink "$1"; else cat "$1"; fi >/dev/null`, "sh", path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: p.uid, Gid: p.uid}}
	return cmd.Run()
}
