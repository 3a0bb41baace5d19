package vm

import (
	"fmt"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// noter is how a state is written down: VM.note, adoption.observe.
type noter func(s lifecycle.State, message string, mutate ...func(*nodev1.VirtualMachine))

// lose notes in a VM that its shim is lost.
func (s *supervisor) lose(m *VM, p place.ShimProcess, why error, note noter) {
	m.mu.Lock()
	m.live, m.lost = nil, p
	m.mu.Unlock()
	note(lifecycle.Crashed, fmt.Sprintf("%s (%v): kill the VM to start it again", plight(p), why))
	s.tasks.Go(func() { s.awaitLost(m, p) })
}

// giveUp notes a shim that was lost while it was watched.
func (s *supervisor) giveUp(m *VM, l *live, process place.ShimProcess, err error) {
	l.swap(nil)
	s.lose(m, process, err, m.note)
	close(l.over)
}

// awaitLost notes the end of a lost shim that ends by itself.
func (s *supervisor) awaitLost(m *VM, process place.ShimProcess) {
	if place.WaitForShim(s.tasks.ctx, m.place) != nil {
		return // the agent ends, or it isn't known
	}
	err := endLost(s.tasks.ctx, m, process, func() (note func(), err error) {
		l, err := place.ReadLease(m.place.RunDir())
		if err != nil {
			l = new(place.Lease) // how it ended is unknown
		}
		exit := exitOf(m, l.RunID)
		return func() { noteEnd(m, exit) }, nil
	})
	if err != nil {
		m.log.Debug("a lost shim has ended", "error", err)
	}
}
