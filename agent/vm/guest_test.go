package vm

import (
	"net/netip"
	"testing"

	"github.com/vmlet/vmlet/agent/vm/vmtest"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/vmm"
	"google.golang.org/protobuf/proto"
)

func someGuest() *vmm.Guest {
	return &vmm.Guest{
		AgentVersion: "9.2.0", Hostname: "web-1", OS: vmm.GuestOS{ID: "debian"},
		Interfaces: []vmm.GuestInterface{{Name: "enp1s0", MAC: "02:00:00:00:00:01", Addresses: []netip.Addr{netip.MustParseAddr("10.0.2.2")}}},
	}
}

func wantedGuest() *nodev1.GuestStatus {
	return &nodev1.GuestStatus{
		AgentConnected: true, AgentVersion: "9.2.0", Hostname: "web-1", Os: &nodev1.GuestOS{Id: "debian"},
		Interfaces:          []*nodev1.GuestInterface{{Name: "enp1s0", Mac: "02:00:00:00:00:01", Addresses: []string{"10.0.2.2"}}},
		GuestAgentCondition: &nodev1.GuestAgentCondition{Connected: true, Supported: true},
	}
}

// knows waits until the VM's record has this of its guest.
func (a *testAgent) knows(t *testing.T, want *nodev1.GuestStatus) {
	t.Helper()
	m, err := a.Get(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	vmtest.Eventually(t, "the record has "+want.String(), func() bool {
		return proto.Equal(m.Snapshot().GetStatus().GetGuest(), want)
	})
}

// TestGuestAsked: the guest is asked when its agent connects, what it said is forgotten when
// that goes, and an agent of vmlet's that comes later asks again.
func TestGuestAsked(t *testing.T) {
	w, a := withRunning(t)
	proc := w.Proc("web")
	a.knows(t, &nodev1.GuestStatus{})
	proc.Mu.Lock()
	proc.Guest = someGuest()
	monitor := proc.Monitors[len(proc.Monitors)-1]
	proc.Mu.Unlock()
	monitor.Sends <- vmm.Event{Name: "VSERPORT_CHANGE", Change: vmm.ChangeAgentConnected}
	a.knows(t, wantedGuest())
	monitor.Sends <- vmm.Event{Name: "VSERPORT_CHANGE", Change: vmm.ChangeAgentDisconnected}
	a.knows(t, &nodev1.GuestStatus{})
	a.end()
	a = w.start()
	a.knows(t, wantedGuest())
}

// TestGuestAskedAgain: questions go on while somebody follows the VMs, and the record changes
// only with the answer.
func TestGuestAskedAgain(t *testing.T) {
	w, a := withRunning(t)
	m, _ := a.Get(t.Context(), "web")
	// A guest of its own, of which the VM's own watcher hears nothing.
	monitor := &vmtest.Monitor{Proc: new(vmtest.Proc), Sends: make(chan vmm.Event)}
	watcher := &watcher{supervisor: a.Adopter.supervisor, m: m, l: newLive(nil, nil, w.VMM, nil, monitor), talk: guestTalk{wait: guestFirst}}
	answer := func() {
		t.Helper()
		if watcher.talk.answer == nil {
			t.Fatal("nothing is asked")
		}
		watcher.guestAnswered(<-watcher.talk.answer)
	}
	watcher.askGuest()
	answer()
	if watcher.talk.due != nil {
		t.Error("an agent that is not there is asked again")
	}
	monitor.Proc.Mu.Lock()
	monitor.Proc.Guest = someGuest()
	monitor.Proc.Mu.Unlock()
	watcher.askGuest()
	answer()
	before := m.Snapshot()
	if watcher.talk.due == nil || !proto.Equal(before.Status.Guest, wantedGuest()) {
		t.Errorf("asked again: %t; known: %v", watcher.talk.due != nil, before.Status.Guest)
	}
	watcher.guestDue()
	if watcher.talk.answer != nil || watcher.talk.due == nil {
		t.Error("the guest is asked though nobody follows, or never again")
	}
	changed, stop := a.Follow()
	defer stop()
	<-changed
	watcher.guestDue()
	answer()
	if m.Snapshot() != before {
		t.Error("the record was replaced by the same")
	}
	select {
	case <-changed:
		t.Error("who follows was woken for nothing")
	default:
	}
	if watcher.talk.wait != 4*guestFirst {
		t.Errorf("the next question comes after %v", watcher.talk.wait)
	}
}
