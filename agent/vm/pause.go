package vm

import (
	"fmt"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
)

// pause is why a VM is paused; the zero value: it is not.
type pause struct {
	reason nodev1.PauseReason
	// disk is the name of the one whose error it was; empty: not known, or none.
	disk string
	// message says what to do, to people; empty: there is nothing to be said.
	message string
	// faults are the message in parts, where more is known.
	faults []*nodev1.Fault
}

// note writes the reason down.
func (p pause) note(vm *nodev1.VirtualMachine) {
	vm.Status.PauseReason, vm.Status.PauseDisk, vm.Status.Faults = p.reason, p.disk, p.faults
}

func damagedPause(why error) pause {
	return pause{reason: nodev1.PauseReason_PAUSE_REASON_IMAGE_DAMAGED, faults: fault.Parts(why)}
}

// pauseOf is why a VMM says that its guest is paused.
func pauseOf(status vmm.Status, s *specv1.VirtualMachineSpec) pause {
	switch {
	case status.Running:
		return pause{}
	case status.Asked: // by this agent, or one before it
		return pause{reason: nodev1.PauseReason_PAUSE_REASON_USER}
	case !status.IOError:
		return pause{reason: nodev1.PauseReason_PAUSE_REASON_OTHER}
	}
	why := pause{reason: nodev1.PauseReason_PAUSE_REASON_IO_ERROR, message: "paused: a disk can't be read or written: mend its storage, then resume the VM"}
	for _, e := range status.DiskErrors {
		i := diskInSlot(s.GetDisks(), e.Index)
		if i < 0 {
			continue
		}
		why.disk = s.GetDisks()[i].GetName()
		why.message = fmt.Sprintf("paused: disk %s can't be read or written: mend its storage, then resume the VM", why.disk)
		if e.NoSpace {
			why.message = fmt.Sprintf("paused: there is no space left for disk %s: make room in its storage, then resume the VM", why.disk)
		}
		break
	}
	return why
}

// diskInSlot returns the disk's index; -1: there is none.
func diskInSlot(disks []*specv1.Disk, slot int) int {
	for i := range disks {
		if spec.Slot(disks, i) == slot {
			return i
		}
	}
	return -1
}

// fitReasons drops reasons that are none of a VM in this state. Why it is paused is kept while
// something is done with it after which it is paused again, such as a save.
func fitReasons(s *nodev1.VirtualMachineStatus) {
	live := lifecycle.Live(s.State)
	if !live || s.State == lifecycle.Running {
		s.PauseReason = nodev1.PauseReason_PAUSE_REASON_UNSPECIFIED
	}
	if s.State == lifecycle.Paused && s.PauseReason == nodev1.PauseReason_PAUSE_REASON_UNSPECIFIED {
		s.PauseReason = nodev1.PauseReason_PAUSE_REASON_OTHER
	}
	if s.PauseReason != nodev1.PauseReason_PAUSE_REASON_IO_ERROR {
		s.PauseDisk = ""
	}
	if live {
		s.EndReason = nodev1.EndReason_END_REASON_UNSPECIFIED
	}
}
