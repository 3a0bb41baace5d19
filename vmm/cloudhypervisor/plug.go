package cloudhypervisor

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
)

// PlanAttach implements vmm.Plugger. A device that comes later has one of the places
// that one of a boot could have, and gives it up when it goes.
func (CloudHypervisor) PlanAttach(req vmm.PlugRequest) (*plan.Attachment, error) {
	b, err := newPlugBuilder(&req)
	if err != nil {
		return nil, err
	}
	var a plan.Attachment
	var todo wire.Attach
	if req.Network {
		networks := b.spec.GetNetworks()
		networks[req.Index].Slot = takes(b, "networks", networks, req.Index, networksAtMost)
		slot := spec.Slot(networks, req.Index)
		a.Device, a.Slot = networkID(slot), uint32(slot)
		todo.Net = b.network(req.Index)
	} else {
		disks := b.spec.GetDisks()
		disks[req.Index].Slot = takes(b, "disks", disks, req.Index, disksOn(b.segments()))
		slot := spec.Slot(disks, req.Index)
		a.Device, a.Slot = diskID(slot), uint32(slot)
		disk := b.disk(req.Index)
		todo.Disk = &disk
	}
	if err := b.faults.Err(); err != nil {
		return nil, err
	}
	if todo.Net != nil {
		file := plan.File{Kind: plan.FileReceived, Field: fmt.Sprintf("networks[%d].tap", req.Index), Index: todo.Net.Tap}
		todo.Net.Tap, a.Files = 0, []plan.File{file}
	} else {
		a.Files = b.files
	}
	a.Instructions, err = json.Marshal(todo)
	return &a, err
}

// newPlugBuilder is for a VM that runs: what it was made with its manifest says.
func newPlugBuilder(req *vmm.PlugRequest) (*builder, error) {
	if err := spec.Validate(req.Spec).Err(); err != nil {
		return nil, err
	}
	b, err := newBuilder(req.PlanRequest)
	if err != nil {
		return nil, err
	}
	b.spec, b.attaching = proto.CloneOf(req.Spec), true
	b.req.Image = &vmm.Image{Manifest: req.Manifest, AllowChangedDisks: true}
	return b, nil
}

// takes is the slot of a device that comes: its own, else the first that is free.
func takes[D interface {
	comparable
	GetSlot() uint32
}](b *builder, list string, devices []D, index, places int) *uint32 {
	if spec.HasSlot(devices[index]) {
		return proto.Uint32(devices[index].GetSlot()) // which is judged with the device
	}
	others := slices.Delete(slices.Clone(devices), index, index+1)
	slot, free := spec.FreeSlot(others, 0, places-1)
	if !free {
		b.faults.Add(fmt.Sprintf("%s[%d]", list, index), "all %d places that the VM was started with are taken: detach one, or stop the VM, attach the device and start it again", places)
	}
	return proto.Uint32(uint32(slot))
}

// beyondFence refuses a file that the VMM can't open since it was fenced in.
func (b *builder) beyondFence(field, path string) {
	if !b.details.Landlock {
		return
	}
	for _, folder := range b.req.HotplugFolders {
		if within, err := filepath.Rel(folder, path); err == nil && filepath.IsLocal(within) {
			return
		}
	}
	const remedy = "name its folder there and have the VM saved and restored, or stop the VM, attach the disk and start it again"
	if len(b.req.HotplugFolders) == 0 {
		b.faults.Add(field, "%s: when the VM was started, hotplugFolders in the agent's configuration named no folder in which cloud-hypervisor may open disks later: %s", path, remedy)
		return
	}
	b.faults.Add(field, "%s is in none of the folders in which cloud-hypervisor may open disks later, hotplugFolders in the agent's configuration when the VM was started (%s): %s",
		path, strings.Join(b.req.HotplugFolders, ", "), remedy)
}

// PlanDetach implements vmm.Plugger.
func (CloudHypervisor) PlanDetach(req vmm.PlugRequest) (*plan.Detachment, error) {
	b, err := newPlugBuilder(&req)
	if err != nil {
		return nil, err
	}
	var d plan.Detachment
	if req.Network {
		d.Device = networkID(spec.Slot(b.spec.GetNetworks(), req.Index))
	} else {
		disks := b.spec.GetDisks()
		d.Device, d.DiskName = diskID(spec.Slot(disks, req.Index)), disks[req.Index].GetName()
	}
	d.Instructions, err = json.Marshal(wire.Detach{Device: d.Device})
	return &d, err
}
