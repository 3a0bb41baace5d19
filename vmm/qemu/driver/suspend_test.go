package driver_test

import (
	"testing"

	"github.com/vmlet/vmlet/shim/server/control"
)

// TestSuspendedToDisk: QEMU says so before the guest's shutdown, and a reset in between means
// that the guest has gone on.
func TestSuspendedToDisk(t *testing.T) {
	for name, test := range map[string]struct {
		events []string
		want   control.Ending
	}{
		"suspended":              {[]string{"SUSPEND_DISK", "SHUTDOWN"}, control.Ending{Shutdown: true, Suspended: true}},
		"shut down":              {[]string{"SHUTDOWN"}, control.Ending{Shutdown: true}},
		"reset, and a shutdown":  {[]string{"SUSPEND_DISK", "RESET", "SHUTDOWN"}, control.Ending{Shutdown: true}},
		"reset, and a suspended": {[]string{"RESET", "SUSPEND_DISK", "SHUTDOWN"}, control.Ending{Shutdown: true, Suspended: true}},
	} {
		q, m := dialMonitor(t, nil)
		for _, event := range test.events {
			q.event(event, "guest-shutdown")
		}
		if err := q.hangUp(); err != nil {
			t.Fatal(err)
		}
		if got := m.Ending(t.Context()); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
		m.Close()
	}
}
