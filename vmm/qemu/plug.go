package qemu

import (
	"encoding/json"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/vmlet/vmlet/plan"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu/wire"
)

var _ vmm.Plugger = QEMU{}

// plugging collects, instead of a command line, the commands that say the same to a
// QEMU that runs: the options -blockdev, -netdev and -device take the same JSON as
// blockdev-add, netdev_add and device_add.
type plugging struct {
	steps []wire.Step
	// opens is the index of the file that the next node opens.
	opens *int
}

// step adds what an option's value says.
func (p *plugging) step(option, value string, o options) {
	do := wire.Step{Command: wire.Command{Arguments: json.RawMessage(value)}}
	switch option {
	case "-blockdev":
		do.Name, do.Undo = "blockdev-add", command("blockdev-del", options{"node-name": o["node-name"]})
		do.Opens, p.opens = p.opens, nil
	case "-netdev":
		do.Name, do.Undo = "netdev_add", command("netdev_del", options{"id": o["id"]})
	case "-device":
		do.Name, do.Undo = "device_add", command("device_del", options{"id": o["id"]})
	default:
		panic(fmt.Sprintf("attaching a device with the option %s", option)) // a fault of this package
	}
	p.steps = append(p.steps, do)
}

// fdset hands a file over to the next node. Its path is known when QEMU has it.
func (p *plugging) fdset(file int) string {
	p.opens = &file
	return ""
}

// descriptor hands a file over by a name, which what takes it uses up.
func (p *plugging) descriptor(name string, file int) string {
	named := options{"fdname": name}
	p.steps = append(p.steps, wire.Step{Command: command("getfd", named), File: &file, Undo: command("closefd", named)})
	return name
}

func command(name string, o options) wire.Command {
	return wire.Command{Name: name, Arguments: encoded(o)}
}

// encoded can't fail: what it is given are strings, numbers, booleans and maps of them.
func encoded(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encoding instructions for QEMU: %v", err))
	}
	return text
}

// PlanAttach implements vmm.Plugger.
func (QEMU) PlanAttach(req vmm.PlugRequest) (*plan.Attachment, error) {
	b, err := newPlugBuilder(&req)
	if err != nil {
		return nil, err
	}
	var id string
	var slot int
	if req.Network {
		b.takesNetwork(req.Index)
		if err := b.faults.Err(); err != nil {
			return nil, err
		}
		slot = spec.Slot(b.spec.GetNetworks(), req.Index)
		id = networkID(slot)
		b.network(req.Index)
	} else {
		b.takesDisk(req.Index)
		if err := b.faults.Err(); err != nil {
			return nil, err
		}
		slot = spec.Slot(b.spec.GetDisks(), req.Index)
		id = diskID(slot)
		b.diskDevice(req.Index, b.spec.GetDisks()[req.Index], b.diskNodes(req.Index, b.spec.GetDisks()[req.Index]))
	}
	if err := b.faults.Err(); err != nil {
		return nil, err
	}
	return &plan.Attachment{
		Device: deviceID(id), Slot: uint32(slot), Files: b.files,
		Instructions: encoded(wire.Attach{Steps: b.plug.steps}),
	}, nil
}

// newPlugBuilder is for a machine that runs: what it is was decided at its start.
func newPlugBuilder(req *vmm.PlugRequest) (*builder, error) {
	if err := spec.Validate(req.Spec).Err(); err != nil {
		return nil, err
	}
	details, ok := req.Info.Details.(*Details)
	if !ok {
		return nil, fmt.Errorf("planning a device for QEMU: the information on %s is of type %T, not QEMU's", req.Info.Binary, req.Info.Details)
	}
	s := proto.CloneOf(req.Spec)
	b := &builder{req: req.PlanRequest, spec: s, details: details, plug: new(plugging)}
	// The run's image, as if it were restored: the same machine, with what it was
	// made with. Its disks are those of now.
	b.req.Image = &vmm.Image{Manifest: req.Manifest, AllowChangedDisks: true}
	b.chooseMachine()
	return b, b.faults.Err()
}

// takesDisk refuses a disk that the machine can't be given while it runs, and gives it
// a slot.
func (b *builder) takesDisk(index int) {
	disks := b.spec.GetDisks()
	d, field := disks[index], fmt.Sprintf("disks[%d]", index)
	switch d.GetBus() {
	case spec.BusSCSI:
		if b.req.Image.Manifest.VMM.Extra[scsiKey] != present {
			b.faults.Add(field+".bus", "scsi: the machine was started without a SCSI controller, which comes with the first SCSI disk: want virtio, or stop the VM, attach the disk and start it again")
			return
		}
		d.Slot = freeSlot(b, field, disks, index, 0, spec.FirstLaterSlot-1)
	case spec.BusVirtio:
		d.Slot = laterSlot(b, field, disks, index, laterDisks())
	default:
		b.faults.Add(field+".bus", "%s: such disks can't come while the machine runs: want virtio or scsi, or stop the VM, attach the disk and start it again", d.GetBus())
	}
}

func (b *builder) takesNetwork(index int) {
	networks := b.spec.GetNetworks()
	networks[index].Slot = laterSlot(b, fmt.Sprintf("networks[%d]", index), networks, index, laterNetworks())
}

// laterSlot is a free place among those for what is attached while a machine runs.
func laterSlot[D device](b *builder, field string, devices []D, index int, p laterPlaces) *uint32 {
	places := b.places(p)
	switch {
	case b.onMicroVM():
		b.faults.Add(field, "the machine type microvm has no PCI, and so nothing can be plugged in while it runs: stop the VM, attach the device and start it again")
		return nil
	case places == 0:
		b.faults.Add(field, "the machine has no ports for devices that are attached while it runs, as it goes on from an image of a machine without: stop the VM, attach the device and start it again")
		return nil
	}
	return freeSlot(b, field, devices, index, spec.FirstLaterSlot, spec.FirstLaterSlot+places-1)
}

// device is a disk or a network interface.
type device interface {
	comparable
	GetSlot() uint32
}

// freeSlot is the device's own, if it is from first to last, else the first that is free.
func freeSlot[D device](b *builder, field string, devices []D, index, first, last int) *uint32 {
	own := spec.Slot(devices, index)
	if spec.HasSlot(devices[index]) {
		if own < first || own > last {
			b.faults.Add(field+".slot", "%d: while the machine runs it is one from %d to %d: leave it out, and one is chosen", own, first, last)
		}
		return proto.Uint32(uint32(own))
	}
	others := slices.Delete(slices.Clone(devices), index, index+1)
	slot, free := spec.FreeSlot(others, first, last)
	if !free {
		b.faults.Add(field, "all %d places for devices that are attached while the machine runs are taken: detach one, use a SCSI disk, or stop the VM, attach the device and start it again", last-first+1)
	}
	return proto.Uint32(uint32(slot))
}

// PlanDetach implements vmm.Plugger.
func (QEMU) PlanDetach(req vmm.PlugRequest) (*plan.Detachment, error) {
	b, err := newPlugBuilder(&req)
	if err != nil {
		return nil, err
	}
	if req.Network {
		return b.detachNetwork(req.Index)
	}
	return b.detachDisk(req.Index)
}

func (b *builder) detachNetwork(index int) (*plan.Detachment, error) {
	slot := spec.Slot(b.spec.GetNetworks(), index)
	b.givesUp(fmt.Sprintf("networks[%d]", index), slot, sharing(b.spec.GetNetworks(), slot, slotsNetwork()))
	if err := b.faults.Err(); err != nil {
		return nil, err
	}
	id := networkID(slot)
	return &plan.Detachment{Device: deviceID(id), Instructions: encoded(wire.Detach{Device: deviceID(id), Netdev: id})}, nil
}

func (b *builder) detachDisk(index int) (*plan.Detachment, error) {
	d, field := b.spec.GetDisks()[index], fmt.Sprintf("disks[%d]", index)
	slot := spec.Slot(b.spec.GetDisks(), index)
	switch d.GetBus() {
	case spec.BusSCSI:
	case spec.BusVirtio:
		virtio := slices.DeleteFunc(slices.Clone(b.spec.GetDisks()), func(d *specv1.Disk) bool { return d.GetBus() != spec.BusVirtio })
		b.givesUp(field, slot, sharing(virtio, slot, slotsDisk()))
	default:
		b.faults.Add(field+".bus", "%s: such disks can't go while the machine runs: stop the VM, detach the disk and start it again", d.GetBus())
	}
	if err := b.faults.Err(); err != nil {
		return nil, err
	}
	id := diskID(slot)
	nodes := []string{id, fileNode(id)}
	for i := range d.GetBackingFiles() {
		nodes = append(nodes, backingNode(id, i), fileNode(backingNode(id, i)))
	}
	out := &plan.Detachment{Device: deviceID(id), Instructions: encoded(wire.Detach{Device: deviceID(id), Nodes: nodes})}
	out.DiskName = d.GetName()
	return out, nil
}

// sharing tells whether another of the devices, all of one kind, is in the same PCI
// slot as another function: a slot is unplugged as a whole.
func sharing[D device](devices []D, slot int, s slots) bool {
	if slot >= spec.FirstLaterSlot {
		return false
	}
	for i := range devices {
		other := spec.Slot(devices, i)
		if other != slot && other < spec.FirstLaterSlot && other%s.count == slot%s.count {
			return true
		}
	}
	return false
}

// givesUp refuses what sits where nothing can be unplugged.
func (b *builder) givesUp(field string, slot int, shares bool) {
	const remedy = "stop the VM, detach it and start the VM again"
	switch {
	case b.onMicroVM():
		b.faults.Add(field, "the machine type microvm has no PCI, and so nothing can be unplugged while it runs: %s", remedy)
	case slot >= spec.FirstLaterSlot:
	case b.family.plugsIntoPorts():
		b.faults.Add(field, "it was there when the machine was started, and the root bus of a %s gives up nothing while it runs: %s", b.machine.Name, remedy)
	case shares:
		b.faults.Add(field, "it shares a PCI slot with another device, which would go with it: %s", remedy)
	}
}
