package cloudhypervisor

import (
	"strconv"

	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
)

// Devices sit where their role and slot say, which is their index as a rule, never where there is room: one more
// must move nothing. A segment of PCI has the slots 1 to 31. The first two are left
// to devices that can't be given a place, the watchdog and pvpanic, which take the
// first free; disks come before the seed, so that the first of them stays vda.
const (
	slotEntropy   = 3
	slotBalloon   = 4
	slotVsock     = 5
	slotsNetwork  = 6  // networksAtMost of them
	slotsDisk     = 22 // 8 of them
	slotSeed      = 30
	disksAtFirst  = 8
	disksASegment = 24 // in each segment after the first, from slot 1 on
	hostsASegment = 7  // devices of the host, behind those
)

// networksAtMost is how many interfaces a VM may have (spec.MaxInterfaces).
const networksAtMost = spec.MaxInterfaces

// spareDisks is for how many more disks than there are at its boot a VM has places.
const spareDisks = 4

// segmentsKey is the entry of a manifest's VMM.Extra with the number of PCI segments
// that the VM was made with, which stays for as long as it goes on, whatever comes and
// goes.
const segmentsKey = "pci-segments"

// maxSegments is MAX_NUM_PCI_SEGMENTS (vmm/src/config.rs).
const maxSegments = 96

// segments is how many PCI segments the VM has.
func (b *builder) segments() uint16 {
	needed := uint16(1)
	for i := range b.spec.GetDisks() {
		if slot := spec.Slot(b.spec.GetDisks(), i); slot < spec.MaxDisks {
			needed = max(needed, placeOfDisk(slot).Segment+1)
		}
	}
	for i := range b.spec.GetHostDevices() {
		needed = max(needed, placeOfHostDevice(i).Segment+1)
	}
	if image := b.req.Image; image != nil && image.Manifest != nil {
		made, _ := strconv.ParseUint(image.Manifest.VMM.Extra[segmentsKey], 10, 16)
		if b.attaching && made != 0 {
			return min(uint16(made), maxSegments)
		}
		return max(needed, min(uint16(made), maxSegments))
	}
	if n := len(b.spec.GetDisks()); n > 0 {
		needed = max(needed, placeOfDisk(min(n+spareDisks, spec.MaxDisks)-1).Segment+1)
	}
	return needed
}

// disksOn is how many disks there are places for on that many segments.
func disksOn(segments uint16) int {
	return min(disksAtFirst+(int(segments)-1)*disksASegment, spec.MaxDisks)
}

func slot(n int) *uint8 {
	s := uint8(n)
	return &s
}

// placeOfHostDevice is behind the disks of each segment after the first.
func placeOfHostDevice(index int) chapi.PCI {
	return chapi.PCI{Segment: uint16(1 + index/hostsASegment), Slot: slot(1 + disksASegment + index%hostsASegment)}
}

// placeOfDisk is the first segment for what a firmware may boot from.
func placeOfDisk(number int) chapi.PCI {
	if number < disksAtFirst {
		return chapi.PCI{Slot: slot(slotsDisk + number)}
	}
	number -= disksAtFirst
	return chapi.PCI{Segment: uint16(1 + number/disksASegment), Slot: slot(1 + number%disksASegment)}
}
