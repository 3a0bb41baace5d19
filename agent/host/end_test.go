package host

import (
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
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
	if err := h.EndProcesses(c, strangers); err != nil {
		t.Errorf("in a cgroup that is not there: %v", err)
	}
	if err := groups.Make(c); err != nil {
		t.Fatal(err)
	}
	vmm, more, shim, elsewhere := sleeper(t, strangers), sleeper(t, strangers), sleeper(t, 0), sleeper(t, strangers)
	for _, cmd := range []*exec.Cmd{vmm, more, shim} {
		if err := groups.Add(c, cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.EndProcesses(c, strangers); err == nil || !strings.Contains(err.Error(), "shim seems to be alive") {
		t.Errorf("beside a shim: %v", err)
	}
	// Of a user who has nothing there, and of nobody.
	for _, uid := range []uint32{strangers + 1, 0} {
		if err := h.EndProcesses(c, uid); err != nil {
			t.Error(err)
		}
	}
	if err := shim.Process.Kill(); err != nil { // the others are alive, or they would have been reaped
		t.Fatal(err)
	}
	killed(t, shim)
	if err := h.EndProcesses(c, strangers); err != nil {
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
	if err := (&Host{}).EndProcesses(Cgroup{}, strangers); err != nil {
		t.Error(err)
	}
	killed(t, elsewhere)
	if owner, err := ownerOf(other.Process.Pid); err != nil || owner != strangers+1 {
		t.Errorf("another user's process: its user is %d, %v", owner, err)
	}
}
