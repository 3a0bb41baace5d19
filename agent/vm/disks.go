package vm

import (
	"context"
	"fmt"
	"slices"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"google.golang.org/grpc/codes"
)

// disksFree refuses disks that the VM, or another one that runs, writes to by another name or the same. The kernel refuses
// most of that, too, late and without a name: locks of images, and block devices that are opened exclusively.
//
// What is in a pod counts for pods of its namespace alone: which device is at a path its container may have
// made up, and others are not to be kept from starting by that.
func (a *Manager) disksFree(m *VM, written []place.WrittenDisk) error {
	for i, d := range written {
		if at := slices.IndexFunc(written[:i], d.IsFile); at >= 0 {
			return fault.Errorf(codes.FailedPrecondition, "disks[%d].path: %s is %s with %s, which is disk %q of this VM, too: two disks over it would destroy each other's data",
				d.Index, d.Path, d.File, written[at].Path, written[at].Name)
		}
	}
	namespace := m.namespace()
	for _, other := range a.All() {
		if other == m || !other.mayRun() || other.namespace() != "" && other.namespace() != namespace {
			continue
		}
		theirs := other.writes()
		for _, d := range written {
			if at := slices.IndexFunc(theirs, d.Excludes); at >= 0 {
				return fault.Errorf(codes.FailedPrecondition, "disks[%d].path: %s, disk %q of vm %s, is %s with disk %q of vm %s, which runs, or may, and writes to it: stop that first, or give this one a disk of its own%s",
					d.Index, d.Path, d.Name, m.name, d.File, theirs[at].Name, other.name, oneShares(d, theirs[at]))
			}
		}
	}
	return nil
}

// oneShares is what to do, too, of two disks of which one alone is shareable.
func oneShares(d, other place.WrittenDisk) string {
	if d.Shareable == other.Shareable {
		return ""
	}
	return "; VMs share a disk if it is shareable in each of them"
}

// mayRun: something of the VM runs, is being started, or does not answer.
func (m *VM) mayRun() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.live != nil || m.lost != nil || lifecycle.Live(m.record.GetStatus().GetState())
}

// namespace of the VM's pod; empty: it is the node's own.
func (m *VM) namespace() string { return m.Snapshot().GetStatus().GetPod().GetNamespace() }

// writes are the disks that the VM may write to while it runs. The slice is not to be changed.
func (m *VM) writes() []place.WrittenDisk {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.written
}

// setWritten is for a VM that is about to run, or whose disks have changed.
func (m *VM) setWritten(written []place.WrittenDisk) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.written = written
}

// findWritten looks for the disks of a VM that runs, for as long as ctx: one of them may not answer, and then
// none of them is known.
func (m *VM) findWritten(ctx context.Context, s *specv1.VirtualMachineSpec) {
	found := make(chan []place.WrittenDisk, 1)
	go func() { found <- m.place.Written(s) }()
	select {
	case written := <-found:
		m.setWritten(written)
	case <-ctx.Done():
		m.log.Warn("a disk does not answer: another VM that writes to it is not refused by the agent", "error", fmt.Sprint(context.Cause(ctx)))
	}
}
