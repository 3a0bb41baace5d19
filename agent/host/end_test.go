package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vmlet/vmlet/test/faultfs"
)

// sleeper runs as a user until it is killed, and longer than whoever started it.
func sleeper(t *testing.T, uid uint32) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "1h")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// killed fails unless it was; it waits for its end.
func killed(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	_ = cmd.Wait() // its state tells the same
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
		t.Errorf("it has ended by %v", cmd.ProcessState)
	}
}

// TestEndProcesses: a VMM that has outlived its shim is killed, and nobody else is.
func TestEndProcesses(t *testing.T) {
	needRoot(t)
	groups, err := NewCgroups(ownParent("vmlet-test-"+t.Name()), "vmlet-test-"+t.Name(), silent())
	if err != nil {
		t.Skip(err)
	}
	defer groups.Close()
	strangers := uint32(2_000_000_000 + 2*os.Getpid()) // who nobody else on the machine is
	h, c := &Host{cgroups: groups, log: slog.New(slog.DiscardHandler)}, groups.Plan("web")
	if err := h.EndProcesses(t.Context(), c, strangers); err != nil {
		t.Errorf("in a cgroup that is not there: %v", err)
	}
	if err := groups.Make(c); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	vmm, more, shim, elsewhere := sleeper(t, strangers), sleeper(t, strangers), sleeper(t, 0), sleeper(t, strangers)
	for _, cmd := range []*exec.Cmd{vmm, more, shim} {
		if err := groups.Add(c, cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.EndProcesses(over, c, strangers); err == nil || !strings.Contains(err.Error(), "shim seems to be alive") {
		t.Errorf("beside a shim: %v", err)
	}
	if err := h.EndProcesses(t.Context(), c, 0); err != nil {
		t.Errorf("of no VM: %v", err)
	}
	if err := shim.Process.Kill(); err != nil { // the others are alive, or they would have been reaped
		t.Fatal(err)
	}
	killed(t, shim)
	if err := h.EndProcesses(t.Context(), c, strangers); err != nil {
		t.Error(err)
	}
	killed(t, vmm)
	killed(t, more)
	if err := groups.Remove(c); err != nil {
		t.Error(err)
	}
	if err := elsewhere.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("what is in another cgroup: %v", err)
	}
	// Where there are no cgroups the user alone tells.
	other := sleeper(t, strangers+1)
	if err := (&Host{}).EndProcesses(t.Context(), Cgroup{}, strangers); err != nil {
		t.Error(err)
	}
	killed(t, elsewhere)
	if owner, err := ownerOf(other.Process.Pid); err != nil || owner != strangers+1 {
		t.Errorf("another user's process: its user is %d, %v", owner, err)
	}
}

// bomb fills a cgroup with processes of a user that fork as often as they may: each that is
// killed makes way for another. They end by themselves when this test's process has.
func bomb(t *testing.T, uid uint32, groups Cgroups, c Cgroup) {
	t.Helper()
	perl, err := exec.LookPath("perl")
	if err != nil {
		t.Skip(err)
	}
	const processes = 200
	script := `<STDIN>; fork while -d $ARGV[0]`
	cmd := exec.CommandContext(t.Context(), "nice", "-n", "19", "prlimit", fmt.Sprintf("--nproc=%d", processes), perl, "-e", script, fmt.Sprintf("/proc/%d", os.Getpid()))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	light, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := groups.Add(c, cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(light, "go\n"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // it was killed
	for n := 0; n < processes/2 && t.Context().Err() == nil; {
		pids, err := groups.Processes(c)
		if err != nil {
			t.Fatal(err)
		}
		n = len(pids)
	}
}

// TestEndProcessesThatFork: a VMM that forks faster than it can be looked at is ended all
// the same.
func TestEndProcessesThatFork(t *testing.T) {
	needRoot(t)
	groups, err := NewCgroups(ownParent("vmlet-test-forks"), "vmlet-test-forks", silent())
	if err != nil {
		t.Skip(err)
	}
	defer groups.Close()
	uid := uint32(2_000_000_001 + 2*os.Getpid())
	c := groups.Plan("web")
	for name, searched := range map[string]Cgroup{"in its cgroup": c, "as its user": {}} {
		t.Run(name, func(t *testing.T) {
			if err := groups.Make(c); err != nil {
				t.Fatal(err)
			}
			bomb(t, uid, groups, c)
			h := &Host{cgroups: groups, log: slog.New(slog.DiscardHandler)}
			if err := h.EndProcesses(t.Context(), searched, uid); err != nil {
				t.Error(err)
			}
			if left, err := groups.Processes(c); err != nil || len(left) > 0 {
				t.Errorf("processes %v still run, %v", left, err)
			}
			if err := groups.Remove(c); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestEndProcessesThatHang: of one that the kernel can't end, as a disk does not answer, the
// caller learns in time; when the disk answers it is ended.
func TestEndProcessesThatHang(t *testing.T) {
	needRoot(t)
	disk := faultfs.ForTest(t)
	f, err := os.Create(filepath.Join(disk.Path(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	reached, answer := make(chan struct{}), make(chan struct{})
	disk.Arm(faultfs.Fault{Op: faultfs.OpWrite, Wait: func(context.Context) { close(reached); <-answer }})
	release := sync.OnceFunc(func() { close(answer) })
	defer release() // or this process could not even be killed
	uid := uint32(2_000_000_003 + 2*os.Getpid())
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "echo word; exec sleep 1h")
	cmd.Stdout = f
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-reached
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := new(Host).EndProcesses(ctx, Cgroup{}, uid); err == nil || !strings.Contains(err.Error(), fmt.Sprint(cmd.Process.Pid)) {
		t.Errorf("while the disk does not answer: %v", err)
	}
	release()
	if err := new(Host).EndProcesses(t.Context(), Cgroup{}, uid); err != nil {
		t.Error(err)
	}
	killed(t, cmd)
}

// TestShut: in a cgroup that was shut nothing can fork, or nothing lives.
func TestShut(t *testing.T) {
	needRoot(t)
	for name, open := range hierarchies(t) {
		t.Run(name, func(t *testing.T) {
			groups, err := open()
			if err != nil {
				t.Skip(err)
			}
			defer groups.Close()
			c := groups.Plan("web")
			if err := groups.Make(c); err != nil {
				t.Fatal(err)
			}
			shell := exec.CommandContext(t.Context(), "sh", "-c", "read -r go; (echo forked)")
			var said strings.Builder
			shell.Stdout = &said
			stdin, err := shell.StdinPipe()
			if err == nil {
				err = shell.Start()
			}
			if err == nil {
				err = errors.Join(groups.Add(c, shell.Process.Pid), groups.Shut(c))
			}
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(stdin, "go\n") // it may have been killed
			_ = shell.Wait()
			if said.Len() > 0 {
				t.Errorf("it %s", said.String())
			}
			if err := groups.Remove(c); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestKillUser: the thread that becomes the user ends, and neither root nor an id that
// means something else to the kernel is ever taken for a VM's.
func TestKillUser(t *testing.T) {
	needRoot(t)
	for _, uid := range []uint32{0, stranger} {
		if err := killUser(uid); err == nil {
			t.Errorf("killed the processes of user %d", uid)
		}
	}
	uid := uint32(2_000_000_000 + 2*os.Getpid())
	for range 20 { // the goroutine may come by the main thread
		victim := sleeper(t, uid)
		if err := killUser(uid); err != nil {
			t.Fatal(err)
		}
		killed(t, victim)
	}
	for foreign := threadsOf(t, uid); len(foreign) > 0; foreign = threadsOf(t, uid) {
		if t.Context().Err() != nil {
			t.Fatalf("threads %v of this process stay another user's", foreign)
		}
	}
}

// threadsOf lists this process's threads whose effective user is that one.
func threadsOf(t *testing.T, uid uint32) (tids []string) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		status, err := os.ReadFile("/proc/self/task/" + e.Name() + "/status")
		if err == nil && strings.Contains(string(status), fmt.Sprintf("Uid:\t%d\t%d\t", uint32(stranger), uid)) {
			tids = append(tids, e.Name())
		}
	}
	return tids
}
