package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/vmlet/vmlet/shim"
	"golang.org/x/sys/unix"
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

// TestKeysAreNotInherited: who possesses a session keyring may use its keys, whoever's
// they are. A VMM is not to have that of whoever started the agent.
func TestKeysAreNotInherited(t *testing.T) {
	const find = "if grep -q vmlet-test-key /proc/keys; then echo it has the key; else echo it has none; fi >&2; exit 1"
	s := newScene(t)
	// A keyring is a thread's, and so is that of a process which it starts.
	runtime.LockOSThread() // for good: the thread ends with the test
	ring, err := unix.KeyctlJoinSessionKeyring("vmlet-test")
	if err == nil {
		_, err = unix.AddKey("user", "vmlet-test-key", []byte("secret"), ring)
	}
	if err != nil {
		t.Skipf("no keyrings here: %v", err)
	}
	if out, err := exec.Command("sh", "-c", find).CombinedOutput(); !strings.Contains(string(out), "has the key") {
		t.Skipf("a process that is started here doesn't see its key: %s, %v", out, err)
	}
	s.startShim()
	p := s.plan(anyQEMU(t))
	p.Program, p.Args = "/bin/sh", []string{"-c", find}
	_, err = s.client.Launch(s.ctx, shim.Launch{Plan: p}, nil, nil)
	if err == nil || !strings.Contains(err.Error(), "it has none") {
		t.Errorf("a VMM says of whoever's key it is: %v", err)
	}
}

// TestVMMIsKilledBeforeItsShim: where memory runs out the kernel is to kill VMMs first, so a
// VMM doesn't inherit its shim's score. The shim's is a higher one here, which needs no right.
func TestVMMIsKilledBeforeItsShim(t *testing.T) {
	const wait = `while read -r score </proc/self/oom_score_adj; [ "$score" != 0 ]; do :; done; echo it has 0 >&2; exit 1`
	s := newScene(t)
	s.startShim()
	s.check(os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", s.shimPID), []byte("300"), 0))
	p := s.plan(anyQEMU(t))
	p.Program, p.Args = "/bin/sh", []string{"-c", wait}
	_, err := s.client.Launch(s.ctx, shim.Launch{Plan: p}, nil, nil)
	if err == nil || !strings.Contains(err.Error(), "it has 0") {
		t.Errorf("a VMM whose shim has 300: %v", err)
	}
}
