package vm

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	"github.com/vmlet/vmlet/shim"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

// wantUnharmed checks a VM of which the agent couldn't find out whether it runs, which
// it does, and has it killed when that can be found out again.
func (w *world) wantUnharmed(t *testing.T, a *testAgent, p *vmtest.Proc, before []string) {
	t.Helper()
	a.wantState(t, "web", lifecycle.Crashed)
	if after := w.Holding(); len(after) != len(before) {
		t.Errorf("held %q, and before %q", after, before)
	}
	_, err := a.Manager.Start(t.Context(), "web", StartOptions{}, nil)
	vmtest.WantCode(t, "start", err, codes.FailedPrecondition)
	vmtest.WantCode(t, "delete", a.Delete(t.Context(), "web"), codes.FailedPrecondition)
	if _, err := a.Kill(t.Context(), "web"); !errors.Is(err, unix.EMFILE) || !p.Alive() {
		t.Errorf("kill of what can't be found: %v", err)
	}
	w.FailStep("process", nil)
	if _, err := a.Kill(t.Context(), "web"); err != nil {
		t.Error(err)
	}
	if p.Alive() {
		t.Error("it was not killed")
	}
	w.WantNothingHeld(t)
	a.mustStart(t, "web")
}

// TestAdoptInDoubt has an agent come back that can't find out whether a shim runs: it
// touches nothing, as the guest may be well.
func TestAdoptInDoubt(t *testing.T) {
	w, a := withRunning(t)
	a.end()
	before := w.Holding()
	w.FailStep("process", unix.EMFILE)
	w.wantUnharmed(t, w.start(), w.Proc("web"), before)
}

// TestLostInDoubt loses the connection to a shim, which can't be looked at either.
func TestLostInDoubt(t *testing.T) {
	w, a := withRunning(t)
	before := w.Holding()
	w.FailStep("process", unix.EMFILE)
	w.Proc("web").Conns[0].HangUp()
	for kept := lifecycle.Running; kept != lifecycle.Crashed && t.Context().Err() == nil; runtime.Gosched() {
		if vm, err := a.store.Load("web"); err == nil {
			kept = vm.GetStatus().GetState()
		}
	}
	w.wantUnharmed(t, a, w.Proc("web"), before)
}

// TestOrphanInDoubt leaves a folder alone whose VM has no record, and may run.
func TestOrphanInDoubt(t *testing.T) {
	w, a := withRunning(t)
	a.end()
	before := w.Holding()
	if err := a.store.Delete("web"); err != nil {
		t.Fatal(err)
	}
	if err := a.store.MakeRunDir("web"); err != nil {
		t.Fatal(err)
	}
	w.FailStep("process", unix.EMFILE)
	b := w.start()
	if after := w.Holding(); len(after) != len(before) {
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
	p, err := place.ProcessOf(id)
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
	if p, err := place.RunningShim(place.ProcessOf(id)); p != nil || err != nil {
		t.Errorf("it stands still: %v, %v", p, err)
	}
	if p, err := place.RunningShim(place.SystemShims{}.Process(filepath.Join(t.TempDir(), "none"))); p != nil || err != nil {
		t.Errorf("no folder: %v, %v", p, err)
	}
}
