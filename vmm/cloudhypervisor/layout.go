package cloudhypervisor

import "github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"

// Devices sit where their role and index say, never where there is room: one more
// must move nothing. A segment of PCI has the slots 1 to 31. The first two are left
// to devices that can't be given a place, the watchdog and pvpanic, which take the
// first free; disks come before the seed, so that the first of them stays vda.
const (
	slotEntropy   = 3
	slotBalloon   = 4
	slotVsock     = 5
	slotsNetwork  = 6  // 16 of them, spec.MaxInterfaces
	slotsDisk     = 22 // 8 of them
	slotSeed      = 30
	disksAtFirst  = 8
	disksASegment = 24 // in each segment after the first, from slot 1 on
	hostsASegment = 7  // devices of the host, behind those
)

func slot(n int) *uint8 {
	s := uint8(n)
	return &s
}

// placeOfHostDevice is behind the disks of each segment after the first.
func placeOfHostDevice(index int) chapi.PCI {
	return chapi.PCI{Segment: uint16(1 + index/hostsASegment), Slot: slot(1 + disksASegment + index%hostsASegment)}
}

// placeOfDisk is the first segment for what a firmware may boot from.
func placeOfDisk(index int) chapi.PCI {
	if index < disksAtFirst {
		return chapi.PCI{Slot: slot(slotsDisk + index)}
	}
	index -= disksAtFirst
	return chapi.PCI{Segment: uint16(1 + index/disksASegment), Slot: slot(1 + index%disksASegment)}
}
