package server

import (
	"testing"
	"time"
)

// TestGuestThatBoots: it does not hear the first press of its power button, nor the second.
func TestGuestThatBoots(t *testing.T) {
	for name, stop := range map[string]func(*scene){
		"by a request": func(s *scene) { _, err := s.client.Stop(s.ctx, patience); s.check(err) },
		"by a signal":  func(s *scene) { s.stop(); <-s.server.ended },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, func(o *Options) { o.PressEvery, o.Grace = time.Millisecond, patience })
			s.machine.deaf.Store(2)
			s.launch()
			stop(s)
			if left := s.machine.deaf.Load(); left >= 0 {
				t.Errorf("the button was not pressed until the guest heard it: %d presses are left", left+1)
			}
		})
	}
}
