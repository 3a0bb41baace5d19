package vm

import (
	"context"
	"reflect"
	"testing"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/vmm"
	"google.golang.org/protobuf/proto"
)

// statusMonitor says that its VMM is as the test has it.
type statusMonitor struct {
	*vmtest.Monitor
	status vmm.Status
}

func (m *statusMonitor) Status(context.Context) (vmm.Status, error) { return m.status, nil }

// TestPauseReasons: what the VMM stops by itself is told from what somebody asked for, and
// is forgotten when the guest runs.
func TestPauseIsTold(t *testing.T) {
	w, a := withRunning(t)
	m, _ := a.Get(t.Context(), "web")
	monitor := &statusMonitor{Monitor: &vmtest.Monitor{Proc: w.Proc("web"), Sends: make(chan vmm.Event)}}
	watcher := &watcher{supervisor: a.Adopter.supervisor, m: m, pace: newPace()}
	watcher.l = newLive(&place.Lease{}, nil, w.VMM, nil, monitor) // of its own: the other is watched, too
	says := func(status vmm.Status, change vmm.Change) {
		monitor.status = status
		watcher.monitorEvent(vmm.Event{Change: change})
	}
	want := func(state lifecycle.State, reason nodev1.PauseReason) {
		t.Helper()
		s := m.Snapshot().GetStatus()
		if s.GetState() != state || s.GetPauseReason() != reason {
			t.Errorf("%s for %s (%s), want %s for %s", s.GetState(), s.GetPauseReason(), s.GetMessage(), lifecycle.Name(state), reason)
		}
	}
	says(vmm.Status{IOError: true}, vmm.ChangePaused)
	want(lifecycle.Paused, nodev1.PauseReason_PAUSE_REASON_IO_ERROR)
	says(vmm.Status{Running: true}, vmm.ChangeResumed)
	want(lifecycle.Running, nodev1.PauseReason_PAUSE_REASON_UNSPECIFIED)
	says(vmm.Status{}, vmm.ChangePaused)
	want(lifecycle.Paused, nodev1.PauseReason_PAUSE_REASON_OTHER)
	if _, err := a.Resume(t.Context(), "web", false); err != nil {
		t.Fatal(err)
	}
	want(lifecycle.Running, nodev1.PauseReason_PAUSE_REASON_UNSPECIFIED)
	if _, err := a.Pause(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	want(lifecycle.Paused, nodev1.PauseReason_PAUSE_REASON_USER)
}

func TestPauseOf(t *testing.T) {
	s := &specv1.VirtualMachineSpec{Disks: []*specv1.Disk{{Name: "root"}, {Name: "data", Slot: proto.Uint32(64)}}}
	for _, c := range []struct {
		name   string
		errors []vmm.DiskError
		want   pause
	}{
		{"no space", []vmm.DiskError{{Index: 64, NoSpace: true}}, pause{disk: "data", message: "paused: there is no space left for disk data: make room in its storage, then resume the VM"}},
		{"the first of two", []vmm.DiskError{{Index: 0}, {Index: 64}}, pause{disk: "root", message: "paused: disk root can't be read or written: mend its storage, then resume the VM"}},
		{"a disk that is gone", []vmm.DiskError{{Index: 7}}, pause{message: "paused: a disk can't be read or written: mend its storage, then resume the VM"}},
	} {
		c.want.reason = nodev1.PauseReason_PAUSE_REASON_IO_ERROR
		if got := pauseOf(vmm.Status{IOError: true, DiskErrors: c.errors}, s); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
