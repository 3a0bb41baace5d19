package server

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/fault"
)

// TestDamagedIsNotSaved has an image that would look whole.
func TestDamagedIsNotSaved(t *testing.T) {
	s := newSaves(&session{damaged: "chunk 7 is not as it was", vm: withEngine(&vm{}, &process{done: make(chan struct{})}, nil)})
	_, err := s.beginSave(nil, 1, &shim.Save{Directory: "/images/one"}, nil)
	var refused *shim.Error
	if !errors.As(err, &refused) || refused.Code != shim.CodeDamaged || !strings.Contains(err.Error(), "chunk 7") {
		t.Errorf("error %v", err)
	}
}

// TestDamageDuringSave finds the image damaged that RAM is mapped from while
// the guest stands still for a save: it does not go on after that.
func TestDamageDuringSave(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name     string
		found    time.Time
		inResume bool
		runs     bool
	}{
		{"not", time.Time{}, false, true},
		{"before, and the guest was resumed", now.Add(-time.Second), false, true},
		{"during the save", now.Add(time.Second), false, false},
		{"when it goes on", time.Time{}, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &rollback{session: &session{damagedAt: c.found}}
			m := &fakeMachine{}
			continued := false
			m.onContinue(func() error {
				continued = true
				if c.inResume {
					s.mu.Lock()
					defer s.mu.Unlock()
					s.damagedAt = now.Add(time.Second)
				}
				return nil
			})
			v := withEngine(&vm{}, &process{done: make(chan struct{})}, m)
			if err := s.resume(v, &prepared{ran: true, since: now}); err != nil {
				t.Fatal(err)
			}
			if got := m.isRunning(); got != c.runs {
				t.Errorf("it runs: %t", got)
			}
			if want := c.runs || c.inResume; continued != want { // for a moment is too long, too
				t.Errorf("it was continued: %t, want %t", continued, want)
			}
		})
	}
}

// TestSaveWaitsForTheCheck of the image that memory is mapped from: what is found while
// the save is under way counts as well.
func TestSaveWaitsForTheCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, v := newSaves(&session{}), &vm{verified: make(chan struct{})}
		steps, failed := 0, make(chan error, 1)
		wait := func(ctx context.Context) {
			failed <- s.awaitVerified(ctx, v, func(shim.Progress) { steps++ })
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		go wait(ctx)
		synctest.Wait()
		if len(failed) != 0 || steps != 1 {
			t.Errorf("it did not wait, or said so %d times", steps)
		}
		cancel(fault.ErrAborted)
		if err := <-failed; !errors.Is(err, fault.ErrAborted) {
			t.Errorf("aborted: %v", err)
		}
		go wait(t.Context())
		synctest.Wait()
		s.mu.Lock()
		s.damaged = "chunk 7 is not as it was"
		s.mu.Unlock()
		close(v.verified)
		wantCode(t, <-failed, shim.CodeDamaged)
		s.damaged = ""
		if wait(t.Context()); <-failed != nil {
			t.Error("a whole image is refused")
		}
	})
}

// TestDamageFoundBeforeSave: a save that has begun ends with it, and the guest was not
// stopped for that.
func TestDamageFoundBeforeSave(t *testing.T) {
	s := newScene(t, nil)
	s.launch()
	s.machine.set(true)
	verified := make(chan struct{})
	s.server.mu.Lock()
	s.server.vm.verified = verified
	s.server.mu.Unlock()
	image := filepath.Join(s.root, "image")
	_, err := s.client.Save(s.ctx, s.saveArgs(image), nil, func(p shim.Progress) {
		if strings.Contains(p.Step, "checking") {
			s.server.mu.Lock()
			s.server.damaged = "chunk 7 is not as it was"
			s.server.mu.Unlock()
			close(verified)
		}
	})
	wantCode(t, err, shim.CodeDamaged)
	if !s.machine.isRunning() {
		t.Error("the guest stands still")
	}
	s.noFile(image)
}

// TestStopOfDamagedGuest doesn't let it go on first, as that of another that stands still
// does: it would write to its disks what it reads wrong.
func TestStopOfDamagedGuest(t *testing.T) {
	for _, damaged := range []string{"", "chunk 7 is not as it was"} {
		s := newScene(t, nil)
		s.launch()
		continued := false
		s.machine.onContinue(func() error { continued = true; return nil })
		s.server.mu.Lock()
		s.server.damaged = damaged
		s.server.mu.Unlock()
		_, err := s.client.Stop(s.ctx, patience)
		s.check(err)
		if continued != (damaged == "") {
			t.Errorf("damaged %q: continued: %t", damaged, continued)
		}
	}
}
