package vm

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/vmm"
)

// watch follows a running VM until it has ended or the agent ends.
func (s *supervisor) watch(m *VM, l *live) {
	if w := l.shim.Welcome(); w.Damaged != "" { // an agent before this one has heard of it
		why := &contract.Quoted{Sentence: fault.Clip(w.Damaged, fault.MaxMessage), Parts: w.DamagedParts}
		l.setDamaged(why)
		m.moved(lifecycle.Paused, lifecycle.Paused, why.Error(), damagedPause(why).note)
	}
	s.tasks.Go(func() {
		monitor, _ := l.connected()
		w := &watcher{supervisor: s, m: m, l: l, pace: newPace(), talk: guestTalk{wait: guestFirst}}
		w.listen(monitor)
		w.credentials(l.shim.Welcome().Credentials) // an agent before this one has heard of it
		w.askGuest()                                // its agent may have connected before
		w.planRetry()
		if monitor == nil && l.vmm != nil {
			w.again = time.After(silenceFirst)
		}
		w.run()
	})
}

func (w *watcher) listen(monitor vmm.Monitor) {
	w.events = nil
	if monitor != nil {
		w.events = monitor.Events()
	}
}

func (w *watcher) run() {
	fromShim := w.l.shim.Events()
	for {
		events := w.events
		if w.held != nil || w.retry.tried != nil {
			events = nil
		}
		var slot chan<- struct{}
		if w.ignored {
			slot = w.m.slot
		}
		select {
		case <-w.tasks.ctx.Done():
			w.leave()
			return
		case e, ok := <-fromShim:
			if w.tasks.ctx.Err() != nil {
				w.leave()
				return
			}
			if !ok {
				w.supervisor.lostShim(w.m, w.l)
				return
			}
			if w.shimEvent(e) {
				return
			}
		case e, ok := <-events:
			if !ok {
				w.lostMonitor()
				continue
			}
			w.held = turn(w.pace.events)
			w.monitorEvent(e)
		case slot <- struct{}{}: // no operation is under way
			w.ignored = false
			w.resync()
			<-w.m.slot
		case <-w.held:
			w.held = nil
		case <-w.again:
			w.again = nil
			w.reconnect()
		case g := <-w.talk.answer:
			w.guestAnswered(g)
		case <-w.talk.due:
			w.guestDue()
		case <-w.retry.due:
			w.retryDue()
		case <-w.retry.tried:
			w.retried()
		}
	}
}

// leave closes the agent's connections; the VM goes on.
func (w *watcher) leave() {
	w.l.swap(nil)
	w.l.shim.Close()
}

// stopDamaged pauses a guest that was resumed when its shim had paused it, and had not
// reported the damage yet.
func (w *watcher) stopDamaged() {
	monitor, err := w.l.connected()
	if err != nil {
		return // nobody has resumed it
	}
	ctx, cancel := context.WithTimeout(w.tasks.ctx, statusPatience)
	defer cancel()
	if err := monitor.Pause(ctx); err != nil {
		w.m.log.Error("failed to pause a guest whose image is damaged", "error", err)
	}
}

// shimEvent reports whether it was the last.
func (w *watcher) shimEvent(e shim.Event) (last bool) {
	if e.Damaged != "" && w.l.damaged() == nil { // once is enough: a pod's shim may say it as often as it likes
		e.Damaged = fault.Clip(e.Damaged, fault.MaxMessage)
		why := &contract.Quoted{Sentence: e.Damaged, Parts: e.DamagedParts}
		w.l.setDamaged(why)
		w.stopDamaged()
		w.m.log.Error("the image that memory is mapped from is damaged", "error", e.Damaged)
		w.m.moved(lifecycle.Running, lifecycle.Paused, e.Damaged, damagedPause(why).note)
		// The VMM may have said before that it is paused, but not why.
		w.m.moved(lifecycle.Paused, lifecycle.Paused, e.Damaged, damagedPause(why).note)
		w.m.Publish(&nodev1.Event{Type: "image-damaged", Message: e.Damaged})
	}
	if e.Credentials != nil {
		w.credentials(e.Credentials)
	}
	if e.Thawed {
		w.guest(func(s *nodev1.GuestStatus) { s.FsFreezeStatus = freezeStatus(false) })
	}
	if e.Note != nil {
		w.replugged(e.Note)
	}
	if e.Exit != nil {
		w.supervisor.ended(w.m, w.l, e.Exit)
	}
	return e.Exit != nil
}

// replugged is of a device that the guest has let go after all, or of one that has come or
// gone for an agent that was lost meanwhile.
func (w *watcher) replugged(note []byte) {
	d, err := readDelta(note)
	if err == nil {
		err = w.m.place.Refuses(lifecycle.Detach) // nobody has asked a pod's shim to
	}
	if err == nil {
		err = w.m.replug(d, nil)
	}
	if err != nil {
		w.m.log.Error("a device has come or gone", "error", err)
		return
	}
	findDisks(w.tasks.ctx, w.m)
	if d.Detached == "" {
		w.m.Publish(&nodev1.Event{Type: "attached", Message: fmt.Sprintf("%s was attached for an agent that was lost meanwhile", d.Attached.name())})
		return
	}
	w.m.Publish(&nodev1.Event{Type: "detached", Message: fmt.Sprintf("the guest has let go of %s after all", d.Detached)})
}

// lostMonitor connects it again, at once unless that was often. It is no fault yet: most
// monitors are lost because the VMM ends.
func (w *watcher) lostMonitor() {
	if monitor, err := w.l.connected(); err == nil {
		if lost, is := monitor.(interface{ Err() error }); is {
			w.lost = lost.Err()
		}
	}
	w.l.swap(nil)
	w.events = nil
	if w.again = turn(w.pace.connects); w.again == nil {
		w.reconnect()
	}
}

// reconnect connects a lost monitor again, and tries later if that fails. If the
// VMM has ended its socket is gone, so that this fails at once, and the shim is about to
// say so.
func (w *watcher) reconnect() {
	ctx, cancel := context.WithTimeout(w.tasks.ctx, monitorPatience)
	defer cancel()
	monitor, err := w.l.vmm.Connect(ctx, w.l.dial)
	if err != nil {
		w.m.log.Debug("the VMM's monitor is gone", "error", err)
		if w.failures == 0 {
			w.silence = newBackoff(silenceFirst, silenceLast)
		}
		w.again = time.After(w.silence.Step())
		if w.failures++; w.failures > 1 { // it has not ended
			w.complain("VMM monitor lost", "error", cmp.Or(w.lost, err))
			w.remark(err)
		}
		return
	}
	w.l.swap(monitor)
	w.listen(monitor)
	w.askGuest()
	w.unremark()
	w.m.log.Warn("VMM monitor was lost and is connected again: events may be missing", "error", w.lost)
	w.resync()
}

func (w *watcher) monitorEvent(e vmm.Event) {
	if e.Dropped > 0 {
		w.complain("events of the VMM were dropped", "count", e.Dropped)
		defer w.resync()
	}
	switch e.Change {
	case vmm.ChangePaused:
		w.heard(lifecycle.Running)
	case vmm.ChangeResumed:
		w.heard(lifecycle.Paused)
	case vmm.ChangePanicked:
		w.panicked()
	case vmm.ChangeReset:
		w.guest(func(g *nodev1.GuestStatus) { g.Panicked = false })
	case vmm.ChangeAgentConnected:
		w.guestConnected()
	case vmm.ChangeAgentDisconnected:
		w.guestGone()
	}
	if len(e.Name) > maxEventName || len(e.Data) > maxEventData {
		w.complain("an event of the VMM is too large to be kept", "bytes", len(e.Name)+len(e.Data))
		e.Name, e.Data = e.Name[:min(len(e.Name), maxEventName)], nil
	}
	w.m.Publish(&nodev1.Event{Time: stamp(e.Time), Type: strings.ToValidUTF8(e.Name, "?"), Data: strings.ToValidUTF8(string(e.Data), "?")})
}

// lostShim is called when the connection to a shim ended without an exit.
func (s *supervisor) lostShim(m *VM, l *live) {
	process, err := place.RunningShim(m.place.Process())
	if err != nil {
		s.giveUp(m, l, &unseen{m.place.Process}, err)
		return
	}
	if process != nil {
		err := s.again(m, l, process)
		if err != nil && process.Alive() {
			s.giveUp(m, l, process, err)
			return
		}
		process.Close()
		if err == nil {
			return
		}
	}
	s.ended(m, l, exitOf(m, l.lease.RunID))
}

// again connects to a shim that has dropped the connection and still runs.
func (s *supervisor) again(m *VM, l *live, process place.ShimProcess) error {
	ctx, cancel := context.WithTimeout(s.tasks.ctx, monitorPatience)
	defer cancel()
	conn, err := m.place.Dial(ctx)
	if err != nil {
		// It may be ending just now, which closes the connection first.
		if process.Wait(ctx) == nil {
			return os.ErrProcessDone
		}
		return err
	}
	m.log.Warn("the connection to the shim was lost and is there again")
	if err := m.Change(func(vm *nodev1.VirtualMachine) { m.replay(vm, conn.Welcome().Notes) }); err != nil {
		m.log.Error("failed to write the VM's record", "error", err)
	}
	findDisks(s.tasks.ctx, m)
	monitor, _ := l.connected()
	next := newLive(l.lease, conn, l.vmm, l.dial, monitor)
	m.mu.Lock()
	m.live = next
	m.mu.Unlock()
	close(l.over) // for those who waited: they look at the state
	s.watch(m, next)
	return nil
}
