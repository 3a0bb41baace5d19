package vm

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/vmm"
	"golang.org/x/time/rate"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// TestHostileEvents keeps little of what a VMM that was taken over says, and
// nothing that can't be sent on.
func TestHostileEvents(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	a.mustCreate(t, "web")
	m, _ := a.Get(t.Context(), "web")
	watcher := &watcher{supervisor: a.Adopter.supervisor, m: m, pace: newPace()}
	large := bytes.Repeat([]byte("x"), 1<<20)
	for _, e := range []vmm.Event{
		{Name: "LARGE", Data: large},
		{Name: string(large)},
		{Name: "BAD", Data: []byte("{\"a\": \"\xff\"}")},
		{Name: "\xff"},
		{Name: "LATE", Time: time.Unix(1<<50, 0)},
		{Name: "EARLY", Time: time.Unix(-1<<50, 0)},
	} {
		sub := a.hub.Subscribe("web", 0, 1)
		watcher.monitorEvent(e)
		for _, item := range sub.Take() {
			b, err := proto.Marshal(item.Event)
			if err != nil {
				t.Errorf("%.10q: %v", e.Name, err)
			}
			if _, err := protojson.Marshal(item.Event); err != nil {
				t.Errorf("%.10q can't be shown: %v", e.Name, err)
			}
			if len(b) > 2*maxEventData {
				t.Errorf("%.10q: %d bytes are kept", e.Name, len(b))
			}
		}
		sub.Close()
	}
}

// TestEndOutsideOfTime: a shim says that its VMM ended at a time that can't be written
// down, and the record is kept.
func TestEndOutsideOfTime(t *testing.T) {
	_, a := withRunning(t)
	m, _ := a.Get(t.Context(), "web")
	noteEnd(m, &shim.Exit{Reason: shim.ReasonShutdown, Time: time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)})
	if err := m.persist(); err != nil {
		t.Error(err)
	}
	if at := m.Snapshot().GetStatus().GetEndedAt(); at.AsTime().Year() < 2000 {
		t.Errorf("it ended at %v", at.AsTime())
	}
}

// TestMonitorThatIsSilent is told in the VM's message, and asked for again.
func TestMonitorThatIsSilent(t *testing.T) {
	w, a := withRunning(t)
	m, _ := a.Get(t.Context(), "web")
	l := m.running()
	silent := true
	dial := func(ctx context.Context, name string) (net.Conn, error) {
		if silent {
			return nil, errors.New("hung up")
		}
		return l.dial(ctx, name)
	}
	watcher := &watcher{supervisor: a.Adopter.supervisor, m: m, l: newLive(l.lease, l.shim, w.VMM, dial, nil), pace: newPace()}
	watcher.lostMonitor()
	if message := m.Snapshot().GetStatus().GetMessage(); strings.Contains(message, "monitor") || watcher.again == nil {
		t.Errorf("after one try the message is %q; again: %t", message, watcher.again != nil)
	}
	watcher.reconnect()
	if message := m.Snapshot().GetStatus().GetMessage(); !strings.Contains(message, "kill the VM") || !strings.Contains(message, "hung up") {
		t.Errorf("the message is %q", message)
	}
	silent = false
	watcher.reconnect()
	if message := m.Snapshot().GetStatus().GetMessage(); message != "" || watcher.events == nil {
		t.Errorf("connected again, and the message is %q", message)
	}
}

// TestLostMonitorIsNoFaultYet: at every ordinary end of a VM its monitor is lost first. The
// log has it when the VMM goes on without.
func TestLostMonitorIsNoFaultYet(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	a.mustCreate(t, "web")
	m, _ := a.Get(t.Context(), "web")
	var log bytes.Buffer
	m.log = slog.New(slog.NewTextHandler(&log, nil))
	gone := func(context.Context, string) (net.Conn, error) { return nil, errors.New("hung up") }
	watcher := &watcher{supervisor: a.Adopter.supervisor, m: m, l: newLive(&place.Lease{}, nil, w.VMM, gone, nil), pace: newPace()}
	watcher.lostMonitor()
	if log.Len() > 0 {
		t.Errorf("for a VMM that may just be ending the log has %q", &log)
	}
	watcher.reconnect()
	if want := "VMM monitor lost"; !strings.Contains(log.String(), want) || !strings.Contains(log.String(), "hung up") {
		t.Errorf("the log has %q, want %q and why", &log, want)
	}
}

// TestFloodIsHeld: of a VMM that tells without end little is taken, and what its shim
// says is heard all the same.
func TestFloodIsHeld(t *testing.T) {
	w, a := withRunning(t)
	m, _ := a.Get(t.Context(), "web")
	proc := w.Proc("web")
	conn := proc.Connect()
	events := make(chan vmm.Event)
	const burst = 3
	watcher := &watcher{
		supervisor: a.Adopter.supervisor, m: m, l: newLive(&place.Lease{}, conn, w.VMM, nil, nil), events: events,
		pace: &pace{events: rate.NewLimiter(0, burst), connects: rate.NewLimiter(0, 0), complaints: rate.NewLimiter(0, 0)},
	}
	ended, taken := make(chan struct{}), 0
	go func() { watcher.run(); close(ended) }()
	told, said := 0, conn.Sends
	for over := false; !over; {
		select {
		case events <- vmm.Event{Name: "FLOOD"}:
			taken++
		case said <- shim.Event{Damaged: "again"}:
			if told++; told == 100 {
				said = nil
				proc.End(&shim.Exit{Reason: shim.ReasonShutdown})
			}
		case <-ended:
			over = true
		}
	}
	// One more is taken before there is a wait for the next.
	if taken > burst+1 {
		t.Errorf("%d events were taken, want at most %d", taken, burst+1)
	}
}

// TestMonitorThatIsLostAgain is not connected without end.
func TestMonitorThatIsLostAgain(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	a.mustCreate(t, "web")
	m, _ := a.Get(t.Context(), "web")
	connects := 0
	lost := func(context.Context, string) (net.Conn, error) { connects++; return nil, errors.New("hung up") }
	watcher := &watcher{supervisor: a.Adopter.supervisor, m: m, l: newLive(&place.Lease{}, nil, w.VMM, lost, nil), pace: &pace{connects: rate.NewLimiter(0, 2), complaints: rate.NewLimiter(0, 0)}}
	for range 5 {
		watcher.lostMonitor()
	}
	if connects != 2 || watcher.again == nil {
		t.Errorf("%d connections, want 2", connects)
	}
}

// TestMonitorThatIsThereAgain is connected after tries that failed, and asked what has
// become of the guest meanwhile.
func TestMonitorThatIsThereAgain(t *testing.T) {
	w, a := withRunning(t)
	m, _ := a.Get(t.Context(), "web")
	watcher := &watcher{supervisor: a.Adopter.supervisor, m: m, l: newLive(&place.Lease{}, nil, w.VMM, dialer(a.Manager.own.Shims, m.place.RunDir()), nil)}
	w.FailStep("connect", errors.New("hung up"))
	watcher.reconnect()
	if watcher.again == nil {
		t.Error("it is not tried again")
	}
	w.FailStep("connect", nil)
	p := w.Proc("web")
	p.Mu.Lock()
	p.Paused = true
	p.Mu.Unlock()
	watcher.reconnect()
	a.wantState(t, "web", lifecycle.Paused)
}

// TestDroppedEventsAreMadeUpFor by asking.
func TestDroppedEventsAreMadeUpFor(t *testing.T) {
	_, a := withRunning(t)
	m, _ := a.Get(t.Context(), "web")
	watcher := &watcher{supervisor: a.Adopter.supervisor, m: m, l: m.running(), pace: newPace()}
	monitor, err := m.running().connected()
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		set  func(context.Context) error
		want lifecycle.State
	}{{monitor.Pause, lifecycle.Paused}, {monitor.Resume, lifecycle.Running}} {
		if err := step.set(t.Context()); err != nil {
			t.Fatal(err)
		}
		watcher.monitorEvent(vmm.Event{Name: "OTHER"})
		if m.State() == step.want {
			t.Errorf("%v is known already", step.want)
		}
		watcher.monitorEvent(vmm.Event{Name: "OTHER", Dropped: 1})
		a.wantState(t, "web", step.want)
		// What has waited since before that is no news.
		watcher.monitorEvent(vmm.Event{Name: "OLD", Change: vmm.ChangePaused})
		watcher.monitorEvent(vmm.Event{Name: "OLD", Change: vmm.ChangeResumed})
		watcher.monitorEvent(vmm.Event{Name: "OLD", Change: vmm.ChangePaused})
		a.wantState(t, "web", step.want)
	}
}
