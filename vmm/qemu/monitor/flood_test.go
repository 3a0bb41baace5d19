package monitor

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/vmlet/vmlet/vmm/qemu/qmp"
	"github.com/vmlet/vmlet/vmm/qemu/qmp/qmptest"
)

// TestFloodsEnd: that events were dropped is told when the flood has ended, though no
// event comes after it.
func TestFloodsEnd(t *testing.T) {
	server, err := qmptest.Start(filepath.Join(t.TempDir(), "qmp"))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	server.Handle("query-status", nil, qmptest.Return(map[string]any{"running": false, "status": "paused"}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m, err := Connect(ctx, func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", server.Path())
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	server.Emit("RESUME", nil) // the pump has it, and waits for somebody to take it
	server.Emit("STOP", nil)
	for range 2 * qmp.DefaultEventCapacity {
		server.Emit("MIGRATION", map[string]any{"status": "setup"})
	}
	if _, err := m.Status(ctx); err != nil { // it comes after all of them
		t.Fatal(err)
	}
	for {
		select {
		case e := <-m.Events():
			if e.Dropped > 0 {
				return
			}
		case <-ctx.Done():
			t.Fatal("that events were dropped is not told")
		}
	}
}
