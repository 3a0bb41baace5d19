package qmp_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmlet/vmlet/vmm/qemu/qmp"
)

// TestNothingIsLeft: when Close has returned no goroutine is there any more, of the
// client's or of those that waited. (The bubble fails the test otherwise.)
func TestNothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, client := startPeer(t)
		for range 3 {
			sub := client.Subscribe()
			go sub.Next(t.Context())
			go client.Execute(t.Context(), "hold", nil, nil)
		}
		p.receive() // one call waits for its reply, the others to be sent
		synctest.Wait()
		client.Close()
		if err := client.Err(); !errors.Is(err, net.ErrClosed) || !errors.Is(err, qmp.ErrDisconnected) {
			t.Errorf("Err: %v", err)
		}
	})
}

// TestDeadlines: an hour passes at once here, as nothing else is left to happen.
func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		near, far := net.Pipe()
		defer far.Close()
		start := time.Now()
		if _, err := qmp.New(ctx, near); !errors.Is(err, qmp.ErrNoGreeting) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("New: %v", err)
		}
		if waited := time.Since(start); waited != time.Hour {
			t.Errorf("New waited %v", waited)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		p, client := startPeer(t)
		ctx, cancel := context.WithTimeout(t.Context(), patience/2)
		defer cancel()
		if err := client.Execute(ctx, "stuck", nil, nil); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, qmp.ErrDisconnected) {
			t.Errorf("the peer doesn't read: %v", err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), patience/2)
		defer cancel()
		go p.receive()
		if err := client.Execute(ctx, "held", nil, nil); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, qmp.ErrNotSent) {
			t.Errorf("the peer doesn't reply: %v", err)
		}
	})
}
