package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/test/printed"
)

// fakeGuest is an agent in the guest.
type fakeGuest struct {
	mu     sync.Mutex
	frozen bool
	// thaws counts the tries, of which the first failing fail.
	thaws, failing int
	freezeErr      error
	// gone: its agent does not answer any more. meanwhile is called as it freezes.
	gone      bool
	meanwhile func()
	command   []string
	rebooted  bool
	// has are the keys and passwords that it was given, unless it refuses them.
	has     []string
	refuses error
}

func (g *fakeGuest) isFrozen() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.frozen
}

func (g *fakeGuest) set(change func(*fakeGuest)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change(g)
}

func (g *fakeGuest) told() (command []string, rebooted bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.command, g.rebooted
}

func (m *fakeMachine) Freeze(context.Context) error {
	m.guest.mu.Lock()
	defer m.guest.mu.Unlock()
	if m.guest.gone {
		return fmt.Errorf("%w: it has gone", control.ErrNoGuestAgent)
	}
	m.guest.frozen = true
	if m.guest.meanwhile != nil {
		m.guest.meanwhile()
	}
	return m.guest.freezeErr
}

func (m *fakeMachine) Thaw(context.Context) error {
	m.guest.mu.Lock()
	defer m.guest.mu.Unlock()
	if m.guest.gone {
		return fmt.Errorf("%w: it has gone", control.ErrNoGuestAgent)
	}
	if m.guest.thaws++; m.guest.thaws <= m.guest.failing {
		return errors.New("no")
	}
	m.guest.frozen = false
	return nil
}

func (m *fakeMachine) Ping(context.Context) error {
	return fmt.Errorf("%w: none here", control.ErrNoGuestAgent)
}

func (m *fakeMachine) Exec(_ context.Context, command []string) (*shim.Probed, error) {
	m.guest.mu.Lock()
	defer m.guest.mu.Unlock()
	m.guest.command = command
	return &shim.Probed{Code: 3, Output: "three"}, nil
}

func (m *fakeMachine) Reboot(context.Context, bool) error {
	m.guest.mu.Lock()
	defer m.guest.mu.Unlock()
	m.guest.rebooted = true
	return nil
}

// TestFreezeEnds: a guest is thawed when its time is over, though nobody asks, its agent fails
// at first, and vmlet's agent has gone.
func TestFreezeEnds(t *testing.T) {
	s := newScene(t, nil)
	s.launch()
	s.machine.guest.set(func(g *fakeGuest) { g.failing = 1 })
	s.check(s.client.Freeze(s.ctx, time.Millisecond))
	s.client.Close()
	s.waitFor(func() bool { return !s.machine.guest.isFrozen() })
	s.client = s.dial()
	s.check(s.client.Freeze(s.ctx, time.Hour)) // nothing of the first is left
	if !s.machine.guest.isFrozen() {
		t.Error("the second freeze was ended by the first one's time")
	}
}

// TestFreezeAgain: another freeze sets the time anew, and a thaw ends it.
func TestFreezeAgain(t *testing.T) {
	s := newScene(t, nil)
	s.launch()
	s.check(s.client.Freeze(s.ctx, time.Hour))
	s.check(s.client.Freeze(s.ctx, time.Millisecond))
	s.waitFor(func() bool { return !s.machine.guest.isFrozen() })
	s.check(s.client.Freeze(s.ctx, time.Hour))
	s.check(s.client.Thaw(s.ctx))
	if s.machine.guest.isFrozen() {
		t.Error("it is frozen after a thaw")
	}
	s.check(s.client.Thaw(s.ctx)) // is no error
}

// TestFreezeFails: a guest that may be frozen in part is thawed at once.
func TestFreezeFails(t *testing.T) {
	s := newScene(t, nil)
	s.launch()
	s.machine.guest.set(func(g *fakeGuest) { g.freezeErr = errors.New("a disk does not answer") })
	if err := s.client.Freeze(s.ctx, time.Hour); err == nil {
		t.Error("no error")
	}
	if s.machine.guest.isFrozen() {
		t.Error("it stays frozen")
	}
}

// mayBeSaved saves, and takes that back.
func (s *scene) mayBeSaved() error {
	_, err := s.client.Save(s.ctx, s.saveArgs(filepath.Join(s.root, "image")), nil, nil)
	if err == nil {
		err = s.client.Abort(s.ctx)
	}
	return err
}

// TestFreezeWithoutAgent: a guest that could not be asked is not taken for a frozen one.
func TestFreezeWithoutAgent(t *testing.T) {
	s := newScene(t, nil)
	s.launch()
	s.machine.guest.set(func(g *fakeGuest) { g.gone = true })
	wantCode(t, s.client.Freeze(s.ctx, time.Hour), shim.CodeUnavailable)
	if err := s.mayBeSaved(); err != nil {
		t.Errorf("a save: %v", err)
	}
	probed, err := s.client.Probe(s.ctx, shim.Probe{Command: []string{"/bin/true"}})
	if s.check(err); probed.Frozen {
		t.Error("a probe takes it for frozen")
	}
}

// TestLivenessWhileMoving: a guest that is saved or started, or yet to go on from an image, is not found dead; it
// is not found ready either.
func TestLivenessWhileMoving(t *testing.T) {
	probe := func(s *scene, liveness bool) string {
		probed, err := s.client.Probe(s.ctx, shim.Probe{Liveness: liveness})
		switch {
		case err != nil:
			return "fails"
		case probed.Moving:
			return "moves"
		}
		return "answers"
	}
	expect := func(s *scene, when, alive string) {
		t.Helper()
		if got := probe(s, true); got != alive {
			t.Errorf("%s: liveness %s, want %s", when, got, alive)
		}
		if got := probe(s, false); got != "fails" {
			t.Errorf("%s: readiness %s, of a guest that does not answer", when, got)
		}
	}
	s := newScene(t, nil)
	expect(s, "before it starts", "fails")
	s.driver.onConnect(func(context.Context) error { expect(s, "it is being started", "moves"); return nil })
	s.launch()
	expect(s, "it runs", "fails")
	_, err := s.client.Save(s.ctx, s.saveArgs(filepath.Join(s.root, "image")), nil, nil)
	s.check(err)
	expect(s, "it is being saved", "moves")
	s.check(s.client.Abort(s.ctx))
	expect(s, "it goes on", "fails")

	s = newScene(t, func(o *Options) {
		o.Pod = &Pod{Described: shim.Described{Restore: &shim.PodRestore{Directory: "/claim/image"}}}
	})
	expect(s, "before it is brought back", "moves")
	s.driver.onConnect(func(context.Context) error { expect(s, "it is being brought back", "moves"); return nil })
	s.launch()
	expect(s, "it has been brought back", "fails")
}

// TestAgentGoneWhileFrozen: such a guest is frozen, until it is reset.
func TestAgentGoneWhileFrozen(t *testing.T) {
	s := newScene(t, nil)
	s.launch()
	s.check(s.client.Freeze(s.ctx, time.Hour))
	s.machine.guest.set(func(g *fakeGuest) { g.gone = true })
	wantCode(t, s.client.Freeze(s.ctx, time.Hour), shim.CodeUnavailable)
	wantCode(t, s.client.Thaw(s.ctx), shim.CodeUnavailable)
	wantCode(t, s.mayBeSaved(), shim.CodePrecondition)
	s.machine.reset()
	select {
	case event := <-s.client.Events():
		if !event.Thawed {
			t.Errorf("event %+v, want that it is thawed", event)
		}
	case <-s.ctx.Done():
		t.Fatal("nobody says that it is thawed")
	}
	if err := s.mayBeSaved(); err != nil {
		t.Errorf("a save after a reset: %v", err)
	}
}

// TestResetWhileFreezing: of a guest that was reset meanwhile it isn't known whether it froze
// before or after that.
func TestResetWhileFreezing(t *testing.T) {
	s := newScene(t, nil)
	s.launch()
	s.machine.guest.set(func(g *fakeGuest) { g.meanwhile = s.machine.reset })
	wantCode(t, s.client.Freeze(s.ctx, time.Hour), shim.CodeUnavailable)
	if s.machine.guest.isFrozen() {
		t.Error("it stays frozen, and nobody is to thaw it")
	}
}

// TestThawFailsQuietly: a guest that can't be thawed does not fill the log.
func TestThawFailsQuietly(t *testing.T) {
	var log printed.Text
	s := newScene(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	s.launch()
	s.check(s.client.Freeze(s.ctx, time.Hour))
	s.machine.guest.set(func(g *fakeGuest) { g.gone = true })
	v := s.server.vm
	for range 3 {
		s.server.guests.thawDue(v)
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
		t.Errorf("%d errors, want one:\n%s", n, log.String())
	}
	s.machine.guest.set(func(g *fakeGuest) { g.gone = false })
	s.server.guests.thawDue(v)
	if s.machine.guest.isFrozen() {
		t.Error("it was given up")
	}
}

// TestWhileFrozen: an image of a guest that is frozen would have nobody who thaws it, and its
// agent carries nothing out.
func TestWhileFrozen(t *testing.T) {
	s := newScene(t, nil)
	s.launch()
	for _, timeout := range []time.Duration{0, -1, maxFreeze + 1} {
		wantCode(t, s.client.Freeze(s.ctx, timeout), shim.CodeInvalid)
	}
	s.check(s.client.Freeze(s.ctx, time.Hour))
	_, err := s.client.Save(s.ctx, s.saveArgs(filepath.Join(s.root, "image")), nil, nil)
	wantCode(t, err, shim.CodePrecondition)
	wantCode(t, s.client.Reboot(s.ctx, true), shim.CodePrecondition)
	probed, err := s.client.Probe(s.ctx, shim.Probe{Command: []string{"/bin/true"}})
	s.check(err)
	if command, _ := s.machine.guest.told(); !probed.Frozen || command != nil {
		t.Errorf("%+v; the guest was to run %v", probed, command)
	}
	s.check(s.client.Thaw(s.ctx))
	_, err = s.client.Save(s.ctx, s.saveArgs(filepath.Join(s.root, "image")), nil, nil)
	s.check(err)
	wantCode(t, s.client.Freeze(s.ctx, time.Hour), shim.CodePrecondition)
	s.check(s.client.Abort(s.ctx))
}

// TestStopThaws: a guest has to write to shut down.
func TestStopThaws(t *testing.T) {
	s := newScene(t, nil)
	s.machine.deaf.Store(1 << 20)
	s.launch()
	s.check(s.client.Freeze(s.ctx, time.Hour))
	go func() { _, _ = s.client.Stop(s.ctx, time.Hour) }() // it ends with the scene
	s.waitFor(func() bool { return !s.machine.guest.isFrozen() })
	wantCode(t, s.client.Freeze(s.ctx, time.Hour), shim.CodePrecondition) // it would not come to its end
	s.machine.deaf.Store(0)
}

func TestProbe(t *testing.T) {
	s := newScene(t, nil)
	s.launch()
	_, err := s.client.Probe(s.ctx, shim.Probe{})
	wantCode(t, err, shim.CodeUnavailable)
	probed, err := s.client.Probe(s.ctx, shim.Probe{Command: []string{"/bin/check", "-x"}})
	s.check(err)
	if probed.Code != 3 || probed.Output != "three" {
		t.Errorf("%+v", probed)
	}
	_, err = s.client.Probe(s.ctx, shim.Probe{Command: []string{string(make([]byte, maxCommand+1))}})
	wantCode(t, err, shim.CodeInvalid)
	s.check(s.client.Reboot(s.ctx, true))
	if _, rebooted := s.machine.guest.told(); !rebooted {
		t.Error("the guest was not asked to reboot")
	}
}
