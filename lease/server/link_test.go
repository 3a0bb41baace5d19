package server_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/vmlet/vmlet/lease"
	"github.com/vmlet/vmlet/lease/server"
	"github.com/vmlet/vmlet/test/podlink"
)

// link is a guest's network with what its server logs.
type link struct {
	*podlink.Link
	t   *testing.T
	log *podlink.Log
}

func newLink(t *testing.T) *link {
	t.Helper()
	l := &link{Link: podlink.New(t), t: t, log: new(podlink.Log)}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("server:\n%s", l.log)
		}
	})
	return l
}

// serve answers the guest until the test ends, or the function is called.
func (l *link) serve(c *lease.Config) (stop func()) {
	l.t.Helper()
	sockets := l.Sockets()
	s, err := server.New(sockets, c, slog.New(slog.NewTextHandler(l.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	sockets.Close()
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { s.Serve(ctx) })
	stop = func() { cancel(); serving.Wait() }
	l.t.Cleanup(stop)
	return stop
}
