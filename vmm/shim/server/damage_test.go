package server

import (
	"testing"
	"time"
)

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
