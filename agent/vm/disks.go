package vm

import (
	"context"
	"fmt"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
)

// mayRun: something of the VM runs, is being started, or does not answer.
func (m *VM) mayRun() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.live != nil || m.lost != nil || lifecycle.Live(m.record.GetStatus().GetState())
}

// usedDisks are those of the VM while it runs. The slice is not to be changed.
func (m *VM) usedDisks() []place.UsedDisk {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.disks
}

// setDisks is for a VM that is about to run, or whose disks have changed.
func (m *VM) setDisks(disks []place.UsedDisk) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.disks = disks
}

// findDisks looks for the disks of a VM that runs, or may. One of them may not answer, and then none of them
// is known.
func findDisks(ctx context.Context, m *VM) {
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	s := m.Snapshot().GetStatus().GetEffectiveSpec()
	found := make(chan []place.UsedDisk, 1)
	go func() { found <- m.place.Disks(s) }()
	select {
	case disks := <-found:
		m.setDisks(disks)
	case <-ctx.Done():
		m.log.Warn("a disk does not answer: another VM with it is not refused by the agent", "error", fmt.Sprint(context.Cause(ctx)))
	}
}
