package shim

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/plan"
)

// answer plays the shim: it says hello and then calls reply for each request.
func answer(t *testing.T, welcome string, reply func(w *Wire, r Request)) *Client {
	t.Helper()
	a, b := pair(t)
	w := NewWire(b)
	go func() {
		defer w.Close()
		for {
			var r Request
			files, err := w.Receive(&r)
			if err != nil {
				return
			}
			closeAll(files)
			if r.Op == OpHello {
				w.Send(Message{ID: r.ID, Body: []byte(welcome)})
				continue
			}
			reply(w, r)
		}
	}()
	c, err := NewClient(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

const welcome = `{"major":1,"minor":5,"pid":1}`

func TestVersions(t *testing.T) {
	for _, test := range []struct {
		welcome string
		fits    bool
	}{
		{`{"major":1,"minor":5}`, true},
		{`{"major":1,"minor":4}`, false},
		{`{"major":1,"minor":7,"new":true}`, true},
		{`{"major":2,"minor":0}`, false},
		{`{"major":0,"minor":9}`, false},
	} {
		a, b := pair(t)
		w := NewWire(b)
		go func() {
			var r Request
			w.Receive(&r)
			w.Send(Message{ID: r.ID, Body: []byte(test.welcome)})
		}()
		c, err := NewClient(t.Context(), a)
		var e *Error
		switch {
		case test.fits && err != nil:
			t.Errorf("%s: %v", test.welcome, err)
		case !test.fits && (!errors.As(err, &e) || e.Code != CodeVersion):
			t.Errorf("%s: error %v", test.welcome, err)
		}
		if c != nil {
			c.Close()
		}
	}
}

// Replies go to their requests, in whatever order they come.
func TestRepliesOutOfOrder(t *testing.T) {
	arrived := make(chan struct{})
	var stop Request
	c := answer(t, welcome, func(w *Wire, r Request) {
		if r.Op == OpStop {
			stop = r
			close(arrived)
			return
		}
		w.Send(Message{ID: 999, Body: []byte(`{}`)}) // nobody's
		w.Send(Message{ID: r.ID, Body: []byte(`{"reason":"killed"}`)})
		w.Send(Message{ID: stop.ID, Body: []byte(`{"reason":"shutdown"}`)})
	})
	stopped := make(chan *Exit)
	go func() {
		exit, err := c.Stop(t.Context(), time.Second)
		if err != nil {
			t.Error(err)
		}
		stopped <- exit
	}()
	<-arrived
	exit, err := c.Kill(t.Context())
	if err != nil || exit.Reason != ReasonKilled {
		t.Errorf("kill: %+v, %v", exit, err)
	}
	if exit := <-stopped; exit == nil || exit.Reason != ReasonShutdown {
		t.Errorf("stop: %+v", exit)
	}
}

// An abort is sent after what it aborts, and waited for.
func TestCancelledSaveIsAborted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ops := make(chan Op, 8)
	var save Request
	c := answer(t, welcome, func(w *Wire, r Request) {
		ops <- r.Op
		if r.Op == OpSave {
			save = r
			cancel()
			return
		}
		w.Send(Message{ID: save.ID, Error: &Error{Code: CodeCancelled, Message: "aborted"}})
		w.Send(Message{ID: r.ID})
	})
	_, err := c.Save(ctx, Save{Directory: "/x"}, nil, nil)
	var e *Error
	if !errors.Is(err, context.Canceled) || !errors.As(err, &e) || e.Code != CodeCancelled {
		t.Errorf("error %v", err)
	}
	if first, then := <-ops, <-ops; first != OpSave || then != OpAbort || len(ops) > 0 {
		t.Errorf("requests %s, %s and %d more", first, then, len(ops))
	}
}

// A VMM that came up before the abort could reach it is told of.
func TestLaunchThatWonAgainstItsAbort(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := answer(t, welcome, func(w *Wire, r Request) {
		if r.Op == OpLaunch {
			cancel()
			w.Send(Message{ID: r.ID, Body: []byte(`{"vmmPid":7}`)})
			return
		}
		w.Send(Message{ID: r.ID})
	})
	launched, err := c.Launch(ctx, Launch{}, nil, nil)
	if err != nil || launched.VMMPID != 7 {
		t.Errorf("%+v, %v", launched, err)
	}
}

func TestDisconnected(t *testing.T) {
	c := answer(t, welcome, func(w *Wire, r Request) {
		w.Send(Message{Event: &Event{Damaged: "memory"}})
		w.Close()
	})
	if _, err := c.Commit(t.Context(), Commit{}); !errors.Is(err, ErrDisconnected) {
		t.Errorf("error %v", err)
	}
	<-c.Done()
	if _, err := c.Kill(t.Context()); !errors.Is(err, ErrDisconnected) || !errors.Is(c.Err(), ErrDisconnected) {
		t.Errorf("errors %v, %v", err, c.Err())
	}
	if e, open := <-c.Events(); !open || e.Damaged != "memory" {
		t.Errorf("event %+v", e)
	}
	if _, open := <-c.Events(); open {
		t.Error("events go on")
	}
}

func TestProgressReachesTheCaller(t *testing.T) {
	c := answer(t, welcome, func(w *Wire, r Request) {
		w.Send(Message{ID: r.ID, Progress: &Progress{Step: "one", Done: 1, Total: 2}})
		if r.Op == OpAbort {
			w.Send(Message{ID: r.ID})
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	var got Progress
	// It never ends but by its progress.
	_, err := c.Save(ctx, Save{}, nil, func(p Progress) { got = p; c.Close() })
	cancel()
	if !errors.Is(err, ErrDisconnected) || got != (Progress{"one", 1, 2}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestShimThatDoesNotStart(t *testing.T) {
	dir := t.TempDir()
	fails := filepath.Join(dir, "fails")
	if err := os.WriteFile(fails, []byte("#!/bin/sh\necho words >&2\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, binary := range []string{fails, filepath.Join(dir, "none")} {
		run, state := t.TempDir(), t.TempDir()
		_, _, err := Start(t.Context(), StartOptions{Binary: binary, RunDir: run, StateDir: state, RunID: "1"})
		if err == nil {
			t.Fatalf("%s: started", binary)
		}
		if _, err := os.Lstat(filepath.Join(run, SocketName)); err == nil {
			t.Errorf("%s: its socket is left", binary)
		}
	}
}

// TestStartRefusedWhereItBelongs: a shim that can't be started where it belongs leaves
// nothing.
func TestStartRefusedWhereItBelongs(t *testing.T) {
	dir := t.TempDir()
	refuse := func(func(*syscall.SysProcAttr) (int, error)) error { return unix.EBUSY }
	_, _, err := Start(t.Context(), StartOptions{Binary: "/bin/cat", RunDir: dir, StateDir: t.TempDir(), RunID: "1", Within: refuse})
	if !errors.Is(err, unix.EBUSY) {
		t.Errorf("error %v does not say why", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left in the run folder, %v", left, err)
	}
}

func TestShimLogIsBounded(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, ShimLogName)
	if err := os.WriteFile(log, make([]byte, maxShimLog), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := openShimLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for path, want := range map[string]int64{log: 0, log + ".1": maxShimLog} {
		if st, err := os.Stat(path); err != nil || st.Size() != want {
			t.Errorf("%s: %v, %v", path, st, err)
		}
	}
}

func TestProcess(t *testing.T) {
	self, err := Self("run")
	if err != nil {
		t.Fatal(err)
	}
	if !ProcessAlive(self) {
		t.Error("this process does not live")
	}
	later, reboot, unknown := self, self, self
	later.StartTime++
	reboot.BootID = "9c2bfc0e-0000-4000-8000-000000000001"
	unknown.BootID = "" // as shims before this version leave it
	for name, other := range map[string]ShimProcess{"one started later": later, "one after a reboot": reboot} {
		if ProcessAlive(other) {
			t.Errorf("%s, with this pid, lives", name)
		}
		if _, err := OpenProcess(other); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if self.BootID == "" || !ProcessAlive(unknown) {
		t.Errorf("boot id %q; alive without one: %t", self.BootID, ProcessAlive(unknown))
	}
	f, err := OpenProcess(self)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

// TestErrorsAreBounded: what a shim says went wrong is logged and kept.
func TestErrorsAreBounded(t *testing.T) {
	long := strings.Repeat("ü", 1<<20)
	c := answer(t, welcome, func(w *Wire, r Request) {
		w.Send(Message{ID: r.ID, Error: &Error{Code: CodeInvalid, Field: "x" + long, Message: "x" + long}})
	})
	_, err := c.Kill(t.Context())
	var e *Error
	if !errors.As(err, &e) || e.Code != CodeInvalid {
		t.Fatalf("%.100v", err)
	}
	if len(e.Field) > maxField || len(e.Message) > maxText || !utf8.ValidString(e.Message) || !strings.HasPrefix(e.Message, "xüü") {
		t.Errorf("%d and %d bytes, %.10q", len(e.Field), len(e.Message), e.Message)
	}
}

// TestKillReason: a VMM that is killed for a reason is told of with it, and as in
// version 1.0 without.
func TestKillReason(t *testing.T) {
	args := make(chan string, 2)
	c := answer(t, welcome, func(w *Wire, r Request) {
		args <- string(r.Op) + string(r.Args)
		w.Send(Message{ID: r.ID, Body: []byte("{}")})
	})
	if _, err := c.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := c.Fail(t.Context(), contract.Ending{Message: "deaf"}); err != nil {
		t.Error(err)
	}
	if first, second := <-args, <-args; first != "kill" || second != `kill{"reason":"deaf","ending":{"message":"deaf"}}` {
		t.Errorf("%s, %s", first, second)
	}
}

// TestOlderShim: a shim of the version before is served, but not asked for what it doesn't
// know.
func TestOlderShim(t *testing.T) {
	c := answer(t, welcome, func(_ *Wire, r Request) { t.Errorf("it was asked to %s", r.Op) })
	p := &plan.Plan{Companions: []plan.Companion{{Name: "emulator", Field: "devices.tpm"}}}
	_, err := c.Launch(t.Context(), Launch{Plan: p}, nil, nil)
	var refused *Error
	if !errors.As(err, &refused) || refused.Code != CodePrecondition || refused.Field != "devices.tpm" {
		t.Errorf("launch with a companion: error %v, want one with code %s", err, CodePrecondition)
	}
}
