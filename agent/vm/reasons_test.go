package vm

import (
	"testing"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/vmm"
	"google.golang.org/protobuf/proto"
)

// Reasons, shorter.
const (
	byUser  = nodev1.PauseReason_PAUSE_REASON_USER
	byDisk  = nodev1.PauseReason_PAUSE_REASON_IO_ERROR
	byOther = nodev1.PauseReason_PAUSE_REASON_OTHER
	byImage = nodev1.PauseReason_PAUSE_REASON_IMAGE_DAMAGED
	noPause = nodev1.PauseReason_PAUSE_REASON_UNSPECIFIED
	crashed = nodev1.EndReason_END_REASON_CRASHED
	noEnd   = nodev1.EndReason_END_REASON_UNSPECIFIED
)

// TestFitReasons: a VM has no reason of a state in which it is not.
func TestFitReasons(t *testing.T) {
	for _, c := range []struct {
		state     lifecycle.State
		pause     nodev1.PauseReason
		wantPause nodev1.PauseReason
		wantDisk  string
		wantEnd   nodev1.EndReason
	}{
		{lifecycle.Running, byDisk, noPause, "", noEnd},
		{lifecycle.Paused, byDisk, byDisk, "root", noEnd},
		{lifecycle.Paused, byUser, byUser, "", noEnd},
		{lifecycle.Paused, noPause, byOther, "", noEnd},
		{lifecycle.Saving, byDisk, byDisk, "root", noEnd},
		{lifecycle.Saving, noPause, noPause, "", noEnd},
		{lifecycle.Stopping, byUser, byUser, "", noEnd},
		{lifecycle.Stopped, byUser, noPause, "", crashed},
		{lifecycle.Crashed, byDisk, noPause, "", crashed},
		{lifecycle.Starting, noPause, noPause, "", noEnd},
	} {
		s := &nodev1.VirtualMachineStatus{State: c.state, PauseReason: c.pause, PauseDisk: "root", EndReason: crashed}
		fitReasons(s)
		want := &nodev1.VirtualMachineStatus{State: c.state, PauseReason: c.wantPause, PauseDisk: c.wantDisk, EndReason: c.wantEnd}
		if !proto.Equal(s, want) {
			t.Errorf("%s, paused by %v: got %v, want %v", lifecycle.Name(c.state), c.pause, s, want)
		}
	}
}

// TestEndReason has each way in which shims say that a VMM has ended.
func TestEndReason(t *testing.T) {
	for _, c := range []struct {
		exit shim.Exit
		want nodev1.EndReason
	}{
		{shim.Exit{Reason: shim.ReasonShutdown}, nodev1.EndReason_END_REASON_SHUTDOWN},
		{shim.Exit{Reason: shim.ReasonKilled}, nodev1.EndReason_END_REASON_KILLED},
		{shim.Exit{Reason: shim.ReasonKilled, GraceOver: true}, nodev1.EndReason_END_REASON_GRACE_PERIOD_OVER},
		{shim.Exit{Reason: shim.ReasonPanicked}, nodev1.EndReason_END_REASON_PANICKED},
		{shim.Exit{Reason: shim.ReasonSuspended}, nodev1.EndReason_END_REASON_SUSPENDED},
		{shim.Exit{Reason: shim.ReasonSaved}, nodev1.EndReason_END_REASON_SAVED},
		{shim.Exit{Reason: shim.ReasonCrashed}, crashed},
		{shim.Exit{Reason: "of a newer shim"}, crashed},
	} {
		if _, got, _ := verdict(&c.exit); got != c.want {
			t.Errorf("%+v: %v, want %v", c.exit, got, c.want)
		}
	}
}

// paused waits until a VM is paused for a reason.
func (a *testAgent) paused(t *testing.T, why nodev1.PauseReason, disk string) {
	t.Helper()
	m, err := a.Get(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	vmtest.Eventually(t, "it is paused: "+why.String(), func() bool {
		s := m.Snapshot().GetStatus()
		return s.GetState() == lifecycle.Paused && s.GetPauseReason() == why && s.GetPauseDisk() == disk
	})
}

// TestPauseReasons: by a call, by an error of a disk, by another agent's call; and that an
// agent which takes the VM up finds the reason again.
func TestPauseReasons(t *testing.T) {
	w, a := withRunning(t)
	m, _ := a.Get(t.Context(), "web")
	if err := m.Change(func(vm *nodev1.VirtualMachine) {
		vm.Status.EffectiveSpec.Disks = []*specv1.Disk{{Name: "root"}, {Name: "data"}}
	}); err != nil {
		t.Fatal(err)
	}
	resume := func() {
		t.Helper()
		if vm, err := a.Resume(t.Context(), "web", false); err != nil || vm.GetStatus().GetPauseReason() != noPause {
			t.Errorf("%v, %v", vm.GetStatus(), err)
		}
	}
	vmmSays := func(s vmm.Status, events ...vmm.Event) {
		proc := w.Proc("web")
		proc.Mu.Lock()
		proc.Paused, proc.Stopped = true, &s
		monitor := proc.Monitors[len(proc.Monitors)-1]
		proc.Mu.Unlock()
		for _, e := range events {
			monitor.Sends <- e
		}
	}
	stop := vmm.Event{Name: "STOP", Change: vmm.ChangePaused}
	if _, err := a.Pause(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	a.paused(t, byUser, "")
	resume()
	vmmSays(vmm.Status{IOError: true, DiskErrors: []vmm.DiskError{{Index: 1}}}, stop)
	a.paused(t, byDisk, "data")
	resume()
	vmmSays(vmm.Status{}, stop)
	a.paused(t, byOther, "")
	resume()
	vmmSays(vmm.Status{IOError: true}, stop)
	a.paused(t, byDisk, "")
	a.end()
	a = w.start()
	a.paused(t, byDisk, "")
	proc := w.Proc("web")
	proc.Mu.Lock()
	conn := proc.Conns[len(proc.Conns)-1]
	proc.Mu.Unlock()
	conn.Sends <- shim.Event{Damaged: "a chunk is wrong"}
	a.paused(t, byImage, "")
}
