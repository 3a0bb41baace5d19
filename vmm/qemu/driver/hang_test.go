package driver_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"

	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/vmm/qemu/driver"
	"github.com/vmlet/vmlet/vmm/qemu/qmp"
	"github.com/vmlet/vmlet/vmm/qemu/qmp/qmptest"
)

// TestHangs: a save does not wait without end for a QEMU that does nothing any more.
func TestHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := driver.QEMU{}.Connect(t.Context(), control.Link{Dial: func(context.Context, string) (net.Conn, error) { return qmptest.Hangs(), nil }})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if _, err := m.Stop(t.Context()); !errors.Is(err, qmp.ErrSilent) {
			t.Errorf("stop: %v", err)
		}
	})
}
