package spec

import (
	"slices"

	"github.com/vmlet/vmlet/contract"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"google.golang.org/protobuf/proto"
)

// FirstLaterSlot is the first of the slots that devices are attached to later. Those
// before it are the places of a boot: there are as many as there may be disks.
const FirstLaterSlot = MaxDisks

// MaxSlot is the last that a device may have; how many there are is the VMM's to say.
const MaxSlot = 2*FirstLaterSlot - 1

// slotted is a device that has a place among its kind.
type slotted interface {
	comparable
	GetSlot() uint32
}

// HasSlot tells a disk's or an interface's slot 0 from none.
func HasSlot(device any) bool {
	switch d := device.(type) {
	case *specv1.Disk:
		return d != nil && d.Slot != nil
	case *specv1.NetworkInterface:
		return d != nil && d.Slot != nil
	}
	return false
}

// Slot is where the device with this index sits: its slot, or its index where it has
// none.
func Slot[D slotted](devices []D, index int) int {
	if d := devices[index]; HasSlot(d) {
		return int(d.GetSlot())
	}
	return index
}

// FreeSlot is the lowest from first to last that none of the devices has; false:
// all are taken. Devices without a slot don't count.
func FreeSlot[D slotted](devices []D, first, last int) (int, bool) {
	taken := make(map[int]bool)
	for _, d := range devices {
		if HasSlot(d) {
			taken[int(d.GetSlot())] = true
		}
	}
	for slot := first; slot <= last; slot++ {
		if !taken[slot] {
			return slot, true
		}
	}
	return 0, false
}

// FixSlots gives every device the slot that it has by its index. From then on devices
// may come and go, and the others stay where they are.
func FixSlots(s *specv1.VirtualMachineSpec) {
	for i, d := range s.Disks {
		d.Slot = proto.Uint32(uint32(Slot(s.Disks, i)))
	}
	for i, n := range s.Networks {
		n.Slot = proto.Uint32(uint32(Slot(s.Networks, i)))
	}
}

// finaliseSlots gives slots to those without, if others have one: an index could be
// another's slot.
func finaliseSlots(s *specv1.VirtualMachineSpec) {
	virtioFirst(s.Disks)
	for i, d := range s.Disks {
		d.Slot = finalSlot(s.Disks, i)
	}
	for i, n := range s.Networks {
		n.Slot = finalSlot(s.Networks, i)
	}
}

// sharedSlots is from how many disks on some share a PCI slot with an earlier one.
const sharedSlots = 8

// virtioFirst gives slots to disks that have none, those on virtio first, where otherwise one
// could share a PCI slot whose first function a disk on another bus leaves empty: guests don't
// look for further functions there.
func virtioFirst(disks []*specv1.Disk) {
	other := func(d *specv1.Disk) bool { return d.Bus != BusVirtio }
	if len(disks) <= sharedSlots || !slices.ContainsFunc(disks, other) || slices.ContainsFunc(disks, func(d *specv1.Disk) bool { return HasSlot(d) }) {
		return
	}
	next := uint32(0)
	for _, last := range []bool{false, true} {
		for _, d := range disks {
			if other(d) == last {
				d.Slot = proto.Uint32(next)
				next++
			}
		}
	}
}

// finalSlot is the device's own, else its index if that is free, else the first that is.
func finalSlot[D slotted](devices []D, index int) *uint32 {
	if !slices.ContainsFunc(devices, func(d D) bool { return HasSlot(d) }) {
		return nil
	}
	if HasSlot(devices[index]) {
		return proto.Uint32(devices[index].GetSlot())
	}
	slot, free := FreeSlot(devices, index, index)
	if !free {
		slot, _ = FreeSlot(devices, 0, MaxSlot) // more than there may be devices
	}
	return proto.Uint32(uint32(slot))
}

// slot finds fault with the slot of the device with this index.
func (v *validator) slot(field string, slot *uint32, index int, slots map[uint32]int, list string) {
	if slot == nil {
		return
	}
	switch earlier, taken := slots[*slot]; {
	case *slot > MaxSlot:
		v.add(field, "%d: at most %d", *slot, MaxSlot)
	case taken:
		v.add(field, "%d is that of %s[%d] too", *slot, list, earlier)
	default:
		slots[*slot] = index
	}
}

// target finds fault with what the guest is to have of its memory.
func (v *validator) target(m *specv1.Memory, size uint64) {
	if m.GetTarget() == "" {
		return
	}
	target, err := ParseQuantity(m.GetTarget())
	switch {
	case err != nil:
		v.add("memory.target", "%v", err)
	case target < MinMemory || target%MinMemory != 0:
		v.add("memory.target", "%s is no multiple of %s", m.GetTarget(), FormatQuantity(MinMemory))
	case m.GetSize() != "" && target > size:
		v.add("memory.target", "%s is more than the machine's memory, %s (%s): what it has is fixed at its start", m.GetTarget(), m.GetSize(), contract.FieldName("memory.size"))
	}
}
