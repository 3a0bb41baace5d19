package server

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/internal/logfile"
	"github.com/vmlet/vmlet/shim/server/fault"
)

// TestNothingBeginsWithAKilledVM: between the kill and the VMM's end a save would fail
// with whatever it was at, as if the VMM had crashed.
func TestNothingBeginsWithAKilledVM(t *testing.T) {
	s := &session{vm: withEngine(&vm{killed: true, plan: &plan.Plan{VMM: "fake"}}, nil, &fakeMachine{})}
	_, errSave := newSaves(s).beginSave(&conn{}, 1, &shim.Save{Directory: "/image"}, nil)
	_, _, _, errPlug := (&devices{s}).plugger(opAttach, nil)
	for name, err := range map[string]error{"save": errSave, "attach": errPlug} {
		var refused *shim.Error
		if !errors.As(err, &refused) || refused.Code != shim.CodePrecondition {
			t.Errorf("%s: %v, want a fault %s", name, err, shim.CodePrecondition)
		}
	}
	if s.op != nil {
		t.Error("an operation is under way")
	}
}

// TestKilledIsNoCrash: an operation that a kill has ended says so, and not how the VMM
// has ended.
func TestKilledIsNoCrash(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(fault.ErrKilled)
	done := make(chan struct{})
	close(done)
	p := &process{done: done, state: &os.ProcessState{}, words: logfile.NewTail(1)}
	if got := fault.Of(p.explain(ctx, errors.New("no reply"))); got.Code != shim.CodeCancelled {
		t.Errorf("it is %v, want %s", got, shim.CodeCancelled)
	}
	ctx, cancel = context.WithCancelCause(t.Context())
	cancel(p.failure())
	if got := fault.Of(p.explain(ctx, errors.New("no reply"))); got.Code != shim.CodeInternal {
		t.Errorf("a crash is %v, want %s", got, shim.CodeInternal)
	}
}

// TestOrderOfTheEnd: the guest's memory is given back before anything is waited for, and how
// the VMM has ended is written down before what may take long.
func TestOrderOfTheEnd(t *testing.T) {
	s := newScene(t, nil)
	freed, written := make(chan bool, 1), make(chan error, 1)
	s.machine.ended = func() {
		gone := false
		for !gone && s.ctx.Err() == nil {
			_, err := os.Lstat(s.ram)
			gone = errors.Is(err, os.ErrNotExist)
		}
		freed <- gone
	}
	s.machine.closed = func() {
		_, err := shim.ReadExit(s.options.StateDir)
		written <- err
	}
	s.launch()
	if _, err := s.client.Kill(s.ctx); err != nil {
		t.Fatal(err)
	}
	if !<-freed {
		t.Error("the guest's memory was kept until all else was done")
	}
	if err := <-written; err != nil {
		t.Errorf("it was not written down before all was taken back: %v", err)
	}
}
