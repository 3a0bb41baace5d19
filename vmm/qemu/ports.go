package qemu

import (
	"fmt"
	"slices"
	"strconv"

	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// Entries of the manifest's VMM.Extra that say what the machine was made with at its
// start, so that it is made with the same when it is restored, whatever has come and
// gone since.
const (
	// portsKey: it has the ports that later devices are plugged into.
	portsKey = "hotplug-ports"
	// scsiKey: it has a SCSI controller.
	scsiKey = "scsi-controller"
	// queuesKey: how many queues its virtio disks have.
	queuesKey = "disk-queues"
	// noSATAKey: the chipset's SATA controller is left out.
	noSATAKey = "no-sata"

	present = "true"
)

// laterPlaces are where devices of one kind are plugged in while a machine runs.
// Like those of a boot they are fixed by role and index. Each port costs 0.1 ms of QEMU's
// start and, under emulation, 1 to 2 ms of the firmware's: so there are few. A SCSI
// controller takes as many disks as there may be.
type laterPlaces struct {
	// name of the ports; first is the PCI slot that they share, as functions.
	name  string
	first int
	count int
	// chassis number of the first: each port has its own.
	chassis int
	// direct are the slots of a machine whose root bus takes devices itself.
	direct []int
}

func laterDisks() laterPlaces {
	return laterPlaces{name: "port-disk", first: 0x19, count: 4, chassis: 1, direct: []int{0x19, 0x1a}}
}

func laterNetworks() laterPlaces {
	return laterPlaces{name: "port-net", first: 0x1a, count: 2, chassis: 5, direct: []int{0x0f, 0x1f}}
}

// plugsIntoPorts: the root bus of PCI Express takes and gives up nothing while the
// machine runs (hw/pci/pcie.c), so it has root ports, each with room for one device.
// There is no adding of those later either.
func (f family) plugsIntoPorts() bool { return f == familyQ35 || f == familyVirt }

// plugsIntoRoot: PCI's own root bus does, by ACPI.
func (f family) plugsIntoRoot() bool { return f == familyPC }

const portDriver = "pcie-root-port"

// hasPorts tells whether the machine is made with ports. An image from before there
// were any goes on without.
func (b *builder) hasPorts() bool {
	if !b.family.plugsIntoPorts() {
		return false
	}
	if image := b.req.Image; image != nil {
		return image.Manifest.VMM.Extra[portsKey] == present
	}
	return b.details.has(portDriver)
}

// hasSCSI tells whether the machine has a SCSI controller: for a disk, or for one that
// it was started with.
func (b *builder) hasSCSI() bool {
	if image := b.req.Image; image != nil && image.Manifest.VMM.Extra[scsiKey] == present {
		return true
	}
	return slices.ContainsFunc(b.spec.GetDisks(), func(d *specv1.Disk) bool { return d.GetBus() == spec.BusSCSI })
}

// lacksSATA tells whether the chipset's SATA controller is left out, as no disk is on it:
// the firmware looks for disks at each of its ports, a seventh of all that QEMU and a
// small guest's firmware do under emulation. An image from before that was done has it.
func (b *builder) lacksSATA() bool {
	if b.family != familyQ35 {
		return false
	}
	if image := b.req.Image; image != nil {
		return image.Manifest.VMM.Extra[noSATAKey] == present
	}
	return !slices.ContainsFunc(b.spec.GetDisks(), func(d *specv1.Disk) bool { return d.GetBus() == spec.BusSATA })
}

// madeWith is what the manifest says of it.
func (b *builder) madeWith(extra map[string]string) {
	if b.hasPorts() {
		extra[portsKey] = present
	}
	if b.hasSCSI() {
		extra[scsiKey] = present
	}
	if b.lacksSATA() {
		extra[noSATAKey] = present
	}
	if queues := b.queues(); queues > 0 {
		extra[queuesKey] = strconv.Itoa(queues)
	}
}

// queues are those of a virtio disk or controller on PCI: one a vCPU that the machine was
// started with, which is QEMU's own choice, too (virtio_pci_optimal_num_queues in
// hw/virtio/virtio-pci.c). It is set, as a restore with other vCPUs would have another,
// and could not load the device. 0: QEMU chooses, as where the image was made.
func (b *builder) queues() int {
	vcpus := spec.VCPUs(b.spec.GetCpu())
	if image := b.req.Image; image != nil {
		vcpus, _ = strconv.ParseUint(image.Manifest.VMM.Extra[queuesKey], 10, 16)
	}
	if b.bus.root == "" {
		return 0
	}
	return int(min(vcpus, maxQueues))
}

// maxQueues is VIRTIO_QUEUE_MAX (include/hw/virtio/virtio.h) less those that a SCSI
// controller has beside.
const maxQueues = 1024 - 2

// withQueues adds the number by the driver's name for it.
func (b *builder) withQueues(o options, property string) options {
	if queues := b.queues(); queues > 0 {
		o[property] = queues
	}
	return o
}

func (b *builder) ports() {
	if !b.hasPorts() {
		return
	}
	for _, p := range []laterPlaces{laterDisks(), laterNetworks()} {
		for i := range p.count {
			b.device("machineType", options{
				"driver": portDriver, "id": p.port(i), "bus": b.bus.root, "addr": fmt.Sprintf("0x%x.0x%x", p.first, i),
				"multifunction": true, "chassis": p.chassis + i,
			})
		}
	}
}

func (p laterPlaces) port(index int) string { return fmt.Sprintf("%s%d", p.name, index) }

// placeLater puts a device where one goes that came while the machine ran.
func (b *builder) placeLater(field string, o options, p laterPlaces, index int) options {
	switch {
	case b.family.plugsIntoRoot() && index < len(p.direct):
		o["bus"], o["addr"] = b.bus.root, fmt.Sprintf("0x%x.0x0", p.direct[index])
	case b.family.plugsIntoPorts() && index < p.count:
		o["bus"], o["addr"] = p.port(index), "0x0.0x0"
	default:
		b.faults.Add(field, "%d: the machine type %s has %d places for what is attached later", spec.FirstLaterSlot+index, b.machine.Name, b.places(p))
	}
	return o
}

// places is how many devices of a kind can be plugged in at a time.
func (b *builder) places(p laterPlaces) int {
	switch {
	case b.family.plugsIntoRoot():
		return len(p.direct)
	case b.hasPorts():
		return p.count
	}
	return 0
}

// placeDevice puts a PCI device where its slot says.
func (b *builder) placeDevice(field string, o options, boot slots, later laterPlaces, slot int) options {
	if slot >= spec.FirstLaterSlot && b.bus.root != "" {
		return b.placeLater(field+".slot", o, later, slot-spec.FirstLaterSlot)
	}
	return b.bus.place(o, boot, slot)
}
