package monitor

import (
	"context"
	"net"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu/qmp/qmptest"
)

// TestIOErrorIsTold: a guest that an I/O error stopped says so, and of which disk.
func TestIOErrorIsTold(t *testing.T) {
	server, err := qmptest.Start(filepath.Join(t.TempDir(), "qmp"))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	server.Handle("query-status", nil, qmptest.Return(map[string]any{"running": false, "status": "io-error"}))
	server.Handle("cont", nil, qmptest.Return(map[string]any{}))
	server.Handle("query-block", nil, qmptest.Return([]map[string]any{
		{"qdev": "/machine/peripheral/disk0-device/virtio-backend", "io-status": "ok"},
		{"qdev": "/machine/peripheral/disk64-device/virtio-backend", "io-status": "nospace"},
		{"qdev": "disk3-device", "io-status": "failed"},
		{"qdev": "disk3-device", "io-status": "nospace"},
		{"qdev": "seed-device", "io-status": "failed"},
		{"qdev": "disk2-device"},
	}))
	m, err := Connect(t.Context(), func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", server.Path())
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	got, err := m.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := vmm.Status{Detail: "io-error", IOError: true, DiskErrors: []vmm.DiskError{{Index: 64, NoSpace: true}, {Index: 3}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("status %+v, want %+v", got, want)
	}
	if err := m.Resume(t.Context()); err == nil || !strings.Contains(err.Error(), "make room") {
		t.Errorf("resumed where the error stays: %v, want what to do", err)
	}
}
