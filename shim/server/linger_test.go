package server

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/internal/console"
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

// TestLastWordsOnConsole: who watches the console gets all that the guest printed, also when
// its end is known already.
func TestLastWordsOnConsole(t *testing.T) {
	s := newScene(t, func(o *Options) { o.Linger = patience })
	_, err := s.client.Launch(s.ctx, shim.Launch{Plan: s.plan("talks")}, nil, nil)
	s.check(err)
	console, err := s.client.Console(s.ctx, 0)
	s.check(err)
	defer console.Close()
	_, err = s.client.Stop(s.ctx, patience)
	s.check(err)
	if b, err := io.ReadAll(console); string(b) != lastSaid() || err != nil {
		t.Errorf("read %d bytes of %d, %v", len(b), len(lastSaid()), err)
	}
}

// TestNobodyReadsConsole: who doesn't read is waited for no longer than others.
func TestNobodyReadsConsole(t *testing.T) {
	c, guest, err := console.New(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	client, err := c.Attach(0)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := guest.WriteString(lastSaid()); err != nil {
		t.Fatal(err)
	}
	guest.Close()
	<-c.Done()
	c.Close()
	(&Server{session: &session{o: Options{Linger: time.Millisecond}, vm: &vm{console: c}}}).linger()
	if b, _ := io.ReadAll(client); len(b) >= len(lastSaid()) {
		t.Errorf("read all %d bytes: it was not cut off", len(b))
	}
}

// TestLingerEnds has an agent that stands still, and a request that comes to no end.
func TestLingerEnds(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		s := &Server{session: &session{o: Options{Linger: time.Second}, conns: make(map[*conn]struct{})}}
		if !s.admit() {
			t.Error("refused before the end")
		}
		for range 2 {
			s.conns[&conn{out: make(chan outgoing, 1), done: make(chan struct{})}] = struct{}{}
		}
		s.linger()
		if s.admit() {
			t.Error("a request is counted that nobody waits for")
		}
		s.requests.Done()
	})
}
