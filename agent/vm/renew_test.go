package vm

import (
	"errors"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/shim"
)

// vmmOf is the version of the VM's VMM as its record has it, and as an image of it would.
func (a *testAgent) vmmOf(t *testing.T, name string) (recorded, saved string) {
	t.Helper()
	m, err := a.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	lease, err := place.ReadLease(m.Placement().RunDir())
	if err != nil {
		t.Fatal(err)
	}
	if held := m.Lease().Manifest.VMM.Version; held != lease.Manifest.VMM.Version {
		t.Errorf("the lease has VMM %s in memory and %s on disk", held, lease.Manifest.VMM.Version)
	}
	return m.Snapshot().GetStatus().GetVmm().GetVersion(), lease.Manifest.VMM.Version
}

// TestRenew: the VM has a VMM of the program that is installed by now, with the machine that it had, and is running throughout.
func TestRenew(t *testing.T) {
	w, a := withRunning(t)
	events := a.hub.Subscribe("web", 0, 64)
	defer events.Close()
	w.VMM.Version = "10.0.2"
	_, result, err := a.Renew(t.Context(), "web", nil)
	if err != nil {
		t.Fatal(err)
	}
	if result.GetVersionBefore() != "7.2.0" || result.GetVersion() != "10.0.2" || result.GetStoppedUs() != 7000 {
		t.Errorf("result %v", result)
	}
	a.wantState(t, "web", lifecycle.Running)
	p := w.Proc("web").Launched
	if p.Restore != nil || p.Paused {
		t.Errorf("the new VMM restores %v, or is to stay paused: %t", p.Restore, p.Paused)
	}
	if recorded, saved := a.vmmOf(t, "web"); recorded != "10.0.2" || saved != "10.0.2" {
		t.Errorf("VMM %s in the record and %s in images, want 10.0.2", recorded, saved)
	}
	m, _ := a.Get(t.Context(), "web")
	if pid := m.Snapshot().GetStatus().GetProcess().GetVmmPid(); pid != int64(w.Proc("web").PID)+1001 {
		t.Errorf("the VMM is process %d in the record", pid)
	}
	if _, err := a.Pause(t.Context(), "web"); err != nil { // the new VMM's monitor is there
		t.Error(err)
	}
	for _, item := range events.Take() {
		if e := item.Event; e.GetType() == "state" && e.GetState() == lifecycle.Paused && e.GetMessage() != "paused" {
			t.Errorf("the VM was taken for paused: %v", e)
		}
	}
}

// TestRenewFails: a VM whose VMM could not be renewed is as it was.
func TestRenewFails(t *testing.T) {
	for name, c := range map[string]struct {
		change func(w *world, a *testAgent)
		want   string
	}{
		"the shim fails":          {func(w *world, _ *testAgent) { w.FailStep("renew", errors.New("no memory")) }, "no memory"},
		"another machine":         {func(w *world, _ *testAgent) { w.VMM.CheckErr = errors.New("an older QEMU") }, "an older QEMU"},
		"a device can't":          {func(w *world, _ *testAgent) { w.VMM.Keeps.Add("devices.vsock", "one process alone") }, "devices.vsock"},
		"the program is missing":  {func(w *world, _ *testAgent) { w.VMM.Missing = errors.New("no such file") }, "no such file"},
		"the guest is not to run": {func(_ *world, a *testAgent) { _, _ = a.Pause(t.Context(), "web") }, "only the VMM of a running VM"},
	} {
		t.Run(name, func(t *testing.T) {
			w, a := withRunning(t)
			m, _ := a.Get(t.Context(), "web")
			w.VMM.Version = "10.0.2"
			c.change(w, a)
			before := m.State()
			_, _, err := a.Renew(t.Context(), "web", nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			a.wantState(t, "web", before)
			if recorded, saved := a.vmmOf(t, "web"); recorded != "7.2.0" || saved != "7.2.0" {
				t.Errorf("VMM %s in the record and %s in images, want 7.2.0", recorded, saved)
			}
		})
	}
}

// TestRenewedMeanwhile: an agent that was lost right after the shim had renewed the VMM has noted nothing: the next one
// learns it from the shim.
func TestRenewedMeanwhile(t *testing.T) {
	w, a := withRunning(t)
	m, _ := a.Get(t.Context(), "web")
	w.VMM.Version = "10.0.2"
	r := &renewing{Renewer: a.Renewer, m: m, l: m.running()}
	ask, err := r.plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a.end()
	proc := w.Proc("web")
	proc.Mu.Lock()
	proc.Renewals, proc.Keep = 1, ask.Keep
	proc.Mu.Unlock()
	a = w.start()
	a.wantState(t, "web", lifecycle.Running)
	if recorded, saved := a.vmmOf(t, "web"); recorded != "10.0.2" || saved != "10.0.2" {
		t.Errorf("VMM %s in the record and %s in images, want 10.0.2", recorded, saved)
	}
	ad := &adoption{Adopter: a.Adopter, m: m, lease: m.Lease()}
	if ad.lease == nil {
		ad.lease = new(place.Lease)
	}
	if err := ad.renewed(shim.Welcome{Keep: []byte(`{"runId":"another"}`)}); err == nil {
		t.Error("what was kept of another run is believed")
	}
}
