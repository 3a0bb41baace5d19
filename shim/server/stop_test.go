package server

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/control"
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

// TestAwaitSave: a shim in a pod that was asked to end lets a save take the guest away that begins in
// time, and has the guest shut down when none comes, one fails, or somebody ends the guest.
func TestAwaitSave(t *testing.T) {
	save := func(s *scene) error {
		_, err := s.client.Save(s.ctx, s.saveArgs(filepath.Join(s.root, "image")), nil, nil)
		return err
	}
	commit := func(s *scene) { _, err := s.client.Commit(s.ctx, shim.Commit{}); s.check(err) }
	// begun has the shim be asked to end in the middle of a save, which ends like this.
	begun := func(result error) func(*scene) error {
		return func(s *scene) error {
			begun, end, over := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			s.machine.onSave(func(_ context.Context, f *os.File) error {
				close(begun)
				<-end
				_, err := f.WriteString("state")
				return errors.Join(err, result)
			})
			go func() { over <- save(s) }()
			<-begun
			s.stop()
			close(end)
			return <-over
		}
	}
	for name, c := range map[string]struct {
		within time.Duration
		then   func(*scene)
		want   shim.Reason
	}{
		"saved":        {time.Hour, func(s *scene) { s.stop(); s.check(save(s)); commit(s) }, shim.ReasonSaved},
		"saved, begun": {time.Nanosecond, func(s *scene) { s.check(begun(nil)(s)); commit(s) }, shim.ReasonSaved},
		"save fails": {time.Nanosecond, func(s *scene) {
			if err := begun(errors.New("disk full"))(s); err == nil {
				s.t.Error("a save that failed ends without an error")
			}
		}, shim.ReasonShutdown},
		"no save":           {time.Nanosecond, func(s *scene) { s.stop() }, shim.ReasonShutdown},
		"not to wait":       {0, func(s *scene) { s.stop() }, shim.ReasonShutdown},
		"stopped meanwhile": {time.Hour, func(s *scene) { s.stop(); _, err := s.client.Stop(s.ctx, patience); s.check(err) }, shim.ReasonShutdown},
		"killed meanwhile":  {time.Hour, func(s *scene) { s.stop(); _, err := s.client.Kill(s.ctx); s.check(err) }, shim.ReasonKilled},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, func(o *Options) { o.Pod, o.Grace = &Pod{AwaitSave: c.within}, patience })
			s.machine.ending = control.Ending{Shutdown: c.want == shim.ReasonShutdown}
			s.launch()
			c.then(s)
			if got := s.exit().Reason; got != c.want {
				t.Errorf("ended by %s, want %s", got, c.want)
			}
		})
	}
}
