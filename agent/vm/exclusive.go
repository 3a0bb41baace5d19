package vm

import (
	"slices"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/contract"
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
	namespace := m.Snapshot().GetStatus().GetPod().GetNamespace() // empty: it is the node's own
	for _, other := range others {
		if in := other.Snapshot().GetStatus().GetPod().GetNamespace(); !other.mayRun() || in != "" && in != namespace {
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

// vsockFree refuses a context id that another running VM has: the kernel
// would, but late and without a name.
func vsockFree(others []*VM, cid uint32) error {
	if cid == 0 {
		return nil
	}
	for _, other := range others {
		if other.running() == nil {
			continue
		}
		if other.Snapshot().GetStatus().GetEffectiveSpec().GetDevices().GetVsock().GetCid() == cid {
			return fault.InField(codes.FailedPrecondition, "devices.vsock.cid", "%d is that of %s, which runs", cid, contract.OtherVM(other.name))
		}
	}
	return nil
}

// onlyOne refuses a second VM with the id of one that has a VMM, and with its addresses.
// VMs in pods are their own affair: what they say of their ids must keep no other from
// being started.
func onlyOne(m *VM, others []*VM) error {
	if _, own := m.place.(place.OnNode); !own {
		return nil
	}
	id := m.Snapshot().GetId()
	for _, other := range others {
		if _, own := other.place.(place.OnNode); !own {
			continue
		}
		if vm := other.Snapshot(); vm.GetId() == id && other.mayRun() {
			return fault.Errorf(codes.FailedPrecondition, "%s has the id %s, as has %s, which is %s: stop that first, or restore this one with a new identity%s",
				contract.ThisVM(m.name), id, contract.OtherVM(other.name), lifecycle.Name(vm.GetStatus().GetState()), contract.Advice("--new-identity"))
		}
	}
	return nil
}
