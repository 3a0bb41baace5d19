package vm

import (
	"time"

	"github.com/vmlet/vmlet/agent/fault"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/proto/vmlet/node/v1/faults"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/vmm"
	"google.golang.org/protobuf/proto"
)

const (
	// guestFirst and guestLast are between two questions to a guest's agent, at first, when
	// the guest may still be getting its addresses, and in the end.
	guestFirst = 5 * time.Second
	guestLast  = time.Minute
	// guestsAsked is how many guests are asked at a time: an answer has up to 64 KiB, and
	// takes a MiB or two while it is read.
	guestsAsked = 4
)

// askGuest has the agent asked, unless it is asked already. It does not wait.
func (w *watcher) askGuest() {
	w.talk.due = nil
	monitor, err := w.l.connected()
	if err != nil || w.talk.answer != nil {
		return // it is asked when the monitor is there again
	}
	asker, can := monitor.(vmm.GuestAsker)
	if !can {
		return
	}
	answer := make(chan *vmm.Guest, 1)
	w.talk.answer = answer
	w.tasks.Go(func() { answer <- w.guests.ask(asker) })
}

// guestAnswered notes what a guest says of itself. An agent that answers is connected, also if
// its event came before anybody watched.
func (w *watcher) guestAnswered(g *vmm.Guest) {
	w.talk.answer = nil
	if g != nil {
		w.guest(func(s *nodev1.GuestStatus) { describeGuest(s, g) })
	}
	if w.m.Snapshot().GetStatus().GetGuest().GetAgentConnected() {
		w.talk.due = time.After(w.talk.wait)
		w.talk.wait = min(2*w.talk.wait, guestLast)
	}
}

// guestDue asks again if anybody wants to know.
func (w *watcher) guestDue() {
	if w.followers.Any() {
		w.askGuest()
		return
	}
	w.talk.due = time.After(w.talk.wait)
}

// guestConnected is of an agent that has come.
func (w *watcher) guestConnected() {
	w.guest(func(s *nodev1.GuestStatus) { s.AgentConnected = true })
	w.talk.wait = guestFirst
	w.askGuest()
}

// guestGone is of an agent that has gone: what it said holds no more.
func (w *watcher) guestGone() {
	w.talk.due, w.talk.answer = nil, nil // an answer under way is of an agent that was
	w.guest(func(s *nodev1.GuestStatus) {
		panicked, credentials := s.Panicked, s.Credentials
		proto.Reset(s)
		s.Panicked, s.Credentials = panicked, credentials
	})
}

// credentials notes whether the guest has its pod's keys and passwords.
func (w *watcher) credentials(c *shim.Credentials) {
	if c == nil {
		return
	}
	said := &nodev1.GuestCredentials{Synchronized: c.Synchronized, Message: fault.Clip(c.Message, fault.MaxLogged), Faults: faults.ToProto(c.Parts)}
	w.guest(func(s *nodev1.GuestStatus) { s.Credentials = said })
}
