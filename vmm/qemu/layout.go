package qemu

import "fmt"

// layout is where devices sit. Addresses are fixed by role and index, never by
// what else there is: a device state is loaded by address.
type layout struct {
	// root is the bus that PCI devices are plugged into; empty: there is no PCI
	// and virtio devices sit on virtio-mmio, in the order of the command line.
	root string
	// transport ends the names of virtio devices: "pci", "device" (mmio).
	transport string
}

func layoutOf(f family) layout {
	switch f {
	case familyMicroVM:
		return layout{transport: "device"}
	case familyPC:
		return layout{root: "pci.0", transport: "pci"}
	}
	return layout{root: "pcie.0", transport: "pci"}
}

// slots is a range of PCI slots for devices of one kind, which fill first the slots and
// then their functions. Slots 0 (host bridge), 1 (PIIX on pc) and 31 (ICH9 on q35) are the
// machine's.
type slots struct {
	first, count int
	// functions: devices share the one slot from its first on. from is the first function
	// of theirs, the others being a device's of the machine.
	functions bool
	from      int
}

func slotSCSI() slots     { return slots{first: 0x02, count: 1} }
func slotSerial() slots   { return slots{first: 0x03, count: 1} }
func slotEntropy() slots  { return slots{first: 0x04, count: 1} }
func slotBalloon() slots  { return slots{first: 0x05, count: 1} }
func slotPanic() slots    { return slots{first: 0x06, count: 1} }
func slotWatchdog() slots { return slots{first: 0x07, count: 1} }
func slotVsock() slots    { return slots{first: 0x08, count: 1} }
func slotUSB() slots      { return slots{first: 0x09, count: 1} }
func slotAHCI() slots     { return slots{first: 0x0a, count: 1} }
func slotSeed() slots     { return slots{first: 0x18, count: 1} } // after the disks: the first of those stays vda
func slotsNetwork() slots { return slots{first: 0x0b, count: 4} }
func slotsDisk() slots    { return slots{first: 0x10, count: 8} }
func slotsHost() slots    { return slots{first: 0x1b, count: 4} } // spec.MaxHostDevices in functions

// slotVideo and slotInputs have on pc, where every slot is taken, what PIIX leaves of its
// own.
func (b *builder) slotVideo() slots {
	if b.family == familyPC {
		return slots{first: 0x01, count: 1, from: 4}
	}
	return slots{first: 0x01, count: 1}
}

func (b *builder) slotInputs() slots {
	if b.family == familyPC {
		return slots{first: 0x01, count: 1, from: 5, functions: true}
	}
	return slots{first: 0x0f, count: 1, functions: true} // spec.MaxInputs in functions
}

// functions is how many a PCI slot has.
const functions = 8

// place puts the device with this index among its kind on the bus.
func (l layout) place(o options, s slots, index int) options {
	if l.root == "" {
		return o
	}
	slot, function := s.first+index%s.count, s.from+index/s.count
	o["bus"] = l.root
	o["addr"] = fmt.Sprintf("0x%x.0x%x", slot, function)
	if s.count > 1 || s.functions {
		o["multifunction"] = true
	}
	return o
}

// virtio returns a virtio device of the kind: "blk" is virtio-blk-pci or
// virtio-blk-device.
func (l layout) virtio(kind string, o options) options {
	o["driver"] = "virtio-" + kind + "-" + l.transport
	if l.root != "" {
		o["disable-legacy"] = "on" // version 1 only: no I/O ports, one way to fail less
	}
	return o
}
