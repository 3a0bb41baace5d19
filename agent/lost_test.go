package agent

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/shim"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

// wantUnharmed checks a VM of which the agent couldn't find out whether it runs, which
// it does, and has it killed when that can be found out again.
func (w *world) wantUnharmed(t *testing.T, a *testAgent, p *fakeProc, before []string) {
	t.Helper()
	a.wantState(t, "web", lifecycle.Crashed)
	if after := w.holding(); len(after) != len(before) {
		t.Errorf("held %q, and before %q", after, before)
	}
	_, err := a.Manager.start(t.Context(), "web", startOptions{}, nil)
	wantCode(t, "start", err, codes.FailedPrecondition)
	wantCode(t, "delete", a.delete(t.Context(), "web"), codes.FailedPrecondition)
	if _, err := a.kill(t.Context(), "web"); !errors.Is(err, unix.EMFILE) || !p.alive() {
		t.Errorf("kill of what can't be found: %v", err)
	}
	w.failStep("process", nil)
	if _, err := a.kill(t.Context(), "web"); err != nil {
		t.Error(err)
	}
	if p.alive() {
		t.Error("it was not killed")
	}
	w.wantNothingHeld(t)
	a.mustStart(t, "web")
}

// TestAdoptInDoubt has an agent come back that can't find out whether a shim runs: it
// touches nothing, as the guest may be well.
func TestAdoptInDoubt(t *testing.T) {
	w, a := withRunning(t)
	a.end()
	before := w.holding()
	w.failStep("process", unix.EMFILE)
	w.wantUnharmed(t, w.start(), w.proc("web"), before)
}

// TestLostInDoubt loses the connection to a shim, which can't be looked at either.
func TestLostInDoubt(t *testing.T) {
	w, a := withRunning(t)
	before := w.holding()
	w.failStep("process", unix.EMFILE)
	w.proc("web").conns[0].hangUp()
	for kept := lifecycle.Running; kept != lifecycle.Crashed && t.Context().Err() == nil; runtime.Gosched() {
		if vm, err := a.store.Load("web"); err == nil {
			kept = vm.GetStatus().GetState()
		}
	}
	w.wantUnharmed(t, a, w.proc("web"), before)
}

// TestOrphanInDoubt leaves a folder alone whose VM has no record, and may run.
func TestOrphanInDoubt(t *testing.T) {
	w, a := withRunning(t)
	a.end()
	before := w.holding()
	if err := a.store.Delete("web"); err != nil {
		t.Fatal(err)
	}
	if err := a.store.MakeRunDir("web"); err != nil {
		t.Fatal(err)
	}
	w.failStep("process", unix.EMFILE)
	b := w.start()
	if after := w.holding(); len(after) != len(before) {
		t.Errorf("held %q, and before %q", after, before)
	}
	if names, err := b.store.RunNames(); err != nil || len(names) != 1 {
		t.Errorf("run folders %q, %v", names, err)
	}
}

// TestSystemProcess is of one that has ended: it is killed and waited for all the same.
func TestSystemProcess(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := shim.Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	p, err := ProcessOf(id)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	soon, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Wait(soon); !errors.Is(err, context.Canceled) || !p.Alive() {
		t.Errorf("%v, alive: %t", err, p.Alive())
	}
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // it was killed
	if err := p.Kill(); err != nil {
		t.Errorf("killing what has ended: %v", err)
	}
	if err := p.Wait(t.Context()); err != nil || p.Alive() {
		t.Errorf("%v, alive: %t", err, p.Alive())
	}
	if p, err := RunningShim(ProcessOf(id)); p != nil || err != nil {
		t.Errorf("it stands still: %v, %v", p, err)
	}
	if p, err := RunningShim(SystemShims{}.Process(filepath.Join(t.TempDir(), "none"))); p != nil || err != nil {
		t.Errorf("no folder: %v, %v", p, err)
	}
}
