package server

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/vmm/shim"
)

// TestDamagedIsNotSaved has an image that would look whole.
func TestDamagedIsNotSaved(t *testing.T) {
	s := &Server{damaged: "chunk 7 is not as it was", vm: &vm{proc: &process{done: make(chan struct{})}}}
	_, err := s.beginSave(nil, 1, &shim.Save{Directory: "/images/one"})
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
			s := &Server{damagedAt: c.found}
			m := &fakeMachine{}
			if c.inResume {
				m.onContinue(func() error {
					s.mu.Lock()
					defer s.mu.Unlock()
					s.damagedAt = now.Add(time.Second)
					return nil
				})
			}
			v := &vm{machine: m, proc: &process{done: make(chan struct{})}}
			if err := s.resume(v, &prepared{ran: true, since: now}); err != nil {
				t.Fatal(err)
			}
			if got := m.isRunning(); got != c.runs {
				t.Errorf("it runs: %t", got)
			}
		})
	}
}
