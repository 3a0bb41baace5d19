package monitor

import (
	"time"

	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
	"golang.org/x/time/rate"
)

const (
	// maxDropped bounds a count of lost events that another process says.
	maxDropped = 1 << 30
	// frameRate and frameBurst are how many frames are read in a second, and at once:
	// who sends more is not the shim's driver, or has a guest that wants to be heard
	// more than others, and waits. The driver drops events then.
	frameRate, frameBurst = 200, 1000
)

// Events returns the channel of events. It is unbuffered: the driver drops those that
// nobody takes in time, and says so.
func (m *monitor) Events() <-chan vmm.Event { return m.events }

func (m *monitor) pump(frames *wire.Frames, pace *rate.Limiter) {
	defer close(m.done)
	defer close(m.events)
	defer m.conn.Close()
	for pace.Wait(m.ctx) == nil {
		frame, err := frames.Next()
		if err != nil {
			return
		}
		ok := true
		switch {
		case frame.State != nil:
			ok = m.lost(frame.State)
		case frame.Event.Source != chapi.SourceVirtioDevice: // what drivers do, as often as they like
			told := frame.Event.AsTold()
			m.panicked.Store(wire.Panicked(m.panicked.Load(), told))
			if wire.BootTried(false, told) {
				m.bootTried.Store(true)
			}
			ok = m.send(event(frame.Event))
		}
		if !ok {
			return
		}
	}
}

// send passes one on, unless the monitor is closed.
func (m *monitor) send(e vmm.Event) bool {
	select {
	case m.events <- e:
		return true
	case <-m.ctx.Done():
		return false
	}
}

// lost makes up for events that were dropped: it passes on those that the state as it
// is now follows from.
func (m *monitor) lost(s *wire.State) bool {
	if s.BootTried {
		m.bootTried.Store(true)
	}
	made := func(source, name string, change vmm.Change) vmm.Event {
		return vmm.Event{Time: time.Now(), Name: eventName(source, name), Change: change}
	}
	var events []vmm.Event
	switch before := m.panicked.Swap(s.Panicked); {
	case s.Panicked && !before:
		events = append(events, made(chapi.SourceGuest, chapi.EventPanic, vmm.ChangePanicked))
	case before && !s.Panicked:
		events = append(events, made(chapi.SourceVM, chapi.EventRebooted, vmm.ChangeReset))
	}
	if s.Dropped > 0 {
		switch info, err := m.info(m.ctx); {
		case err != nil: // nothing is known, and the next caller learns why
		case info.State == chapi.StateRunning:
			events = append(events, made(chapi.SourceVM, chapi.EventResumed, vmm.ChangeResumed))
		default:
			events = append(events, made(chapi.SourceVM, chapi.EventPaused, vmm.ChangePaused))
		}
		if len(events) == 0 {
			events = append(events, made(chapi.SourceVMM, "unknown", vmm.ChangeNone))
		}
		events[0].Dropped = min(s.Dropped, maxDropped)
	}
	for _, e := range events {
		if !m.send(e) {
			return false
		}
	}
	return true
}

// event is a VMM's as the agent has it.
func event(e *wire.Event) vmm.Event {
	out := vmm.Event{Time: e.Time, Name: eventName(e.Source, e.Name), Data: e.Properties, Change: change(e)}
	if out.Time.IsZero() {
		out.Time = time.Now()
	}
	return out
}

// eventName tells the sources apart: two of them have a "shutdown".
func eventName(source, name string) string { return source + "/" + name }

// change says what an event means to an agent.
func change(e *wire.Event) vmm.Change {
	if wire.Panicked(false, e.AsTold()) {
		return vmm.ChangePanicked
	}
	switch eventName(e.Source, e.Name) {
	case eventName(chapi.SourceVM, chapi.EventPaused):
		return vmm.ChangePaused
	case eventName(chapi.SourceVM, chapi.EventResumed), eventName(chapi.SourceVM, chapi.EventBooted):
		return vmm.ChangeResumed
	case eventName(chapi.SourceVM, chapi.EventRebooted):
		return vmm.ChangeReset
	}
	return vmm.ChangeNone
}
