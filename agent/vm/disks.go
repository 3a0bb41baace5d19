package vm

import (
	"context"
	"fmt"
	"slices"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/contract"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"google.golang.org/grpc/codes"
)

// disksFree refuses disks that another VM which runs has by another name or the same, or this one has twice, if one of the
// two writes. The kernel refuses most of that, too, late and without a name: locks of images, and block devices that are opened
// exclusively. It does not refuse one that comes to write what others read, or share.
//
// What is in a pod counts for pods of its namespace alone: which device is at a path its container may have
// made up, and others are not to be kept from starting by that.
func disksFree(m *VM, others []*VM, disks []place.UsedDisk) error {
	for i, d := range disks {
		if at := slices.IndexFunc(disks[:i], d.Spoils); at >= 0 {
			return fault.InField(codes.FailedPrecondition, d.Field, "%s is %s with %s, which is disk %q of this VM, too: two disks over it would destroy each other's data",
				contract.ObjectName(d.Path), d.File, disks[at].Path, disks[at].Name)
		}
	}
	namespace := m.namespace()
	for _, other := range others {
		if !other.mayRun() || other.namespace() != "" && other.namespace() != namespace {
			continue
		}
		theirs := other.usedDisks()
		for _, d := range disks {
			if at := slices.IndexFunc(theirs, d.Excludes); at >= 0 {
				return fault.InField(codes.FailedPrecondition, d.Field, "%s, disk %q of %s, is %s with disk %q of %s, which runs, or may, and %s it: stop that first, or give this one a disk of its own%s",
					contract.ObjectName(d.Path), d.Name, contract.ThisVM(m.name), d.File, theirs[at].Name, contract.OtherVM(other.name), does(theirs[at]), oneShares(d, theirs[at]))
			}
		}
	}
	return nil
}

func does(d place.UsedDisk) string {
	if d.Write {
		return "writes to"
	}
	return "reads"
}

// oneShares is what to do, too, of two disks when only one is shareable.
func oneShares(d, other place.UsedDisk) string {
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

// findDisks looks for the disks of a VM that runs, for as long as ctx: one of them may not answer, and then
// none of them is known.
func (m *VM) findDisks(ctx context.Context, s *specv1.VirtualMachineSpec) {
	found := make(chan []place.UsedDisk, 1)
	go func() { found <- m.place.Disks(s) }()
	select {
	case disks := <-found:
		m.setDisks(disks)
	case <-ctx.Done():
		m.log.Warn("a disk does not answer: another VM with it is not refused by the agent", "error", fmt.Sprint(context.Cause(ctx)))
	}
}
