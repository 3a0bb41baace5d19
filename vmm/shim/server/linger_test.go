package server

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmlet/vmlet/vmm/shim"
)

// TestConnectionsDuringLaunch has others come, ask in vain and go while the VMM comes up.
func TestConnectionsDuringLaunch(t *testing.T) {
	s := newScene(t, nil)
	launched := make(chan struct{})
	go func() {
		defer close(launched)
		s.launch()
	}()
	for up := false; !up; {
		select {
		case <-launched:
			up = true
		default:
		}
		other, err := shim.Dial(s.ctx, s.options.RunDir)
		s.check(err)
		_ = other.Abort(s.ctx) // of nothing; a release would end a shim that has no VM yet
		other.Close()
	}
}

// TestLingerEnds has an agent that stands still, and a request that comes to no end.
func TestLingerEnds(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		s := &Server{o: Options{Linger: time.Second}, conns: make(map[*conn]struct{})}
		if !s.admit() {
			t.Error("refused before the end")
		}
		for range 2 {
			s.conns[&conn{s: s, out: make(chan outgoing, 1), done: make(chan struct{})}] = struct{}{}
		}
		s.linger()
		if s.admit() {
			t.Error("a request is counted that nobody waits for")
		}
		s.requests.Done()
	})
}
