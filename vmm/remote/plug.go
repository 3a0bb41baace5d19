package remote

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/vmlet/vmlet/plan"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/remote/wire"
)

func plug(r vmm.PlugRequest) (wire.PlanAttachRequest, error) {
	l, err := launch(r.PlanRequest)
	if err != nil {
		return wire.PlanAttachRequest{}, err
	}
	m, err := manifest(r.Manifest)
	return wire.PlanAttachRequest{Plug: &wire.Plug{Launch: l, Manifest: m, Network: r.Network, Index: r.Index}}, err
}

// maxID bounds the id of a device, in bytes.
const maxID = 128

// PlanAttach has the driver plan a device, and judges what it says. The slot goes into the
// specification, as the planner's own would.
func (v *VMM) PlanAttach(r vmm.PlugRequest) (*plan.Attachment, error) {
	request, err := plug(r)
	if err != nil {
		return nil, err
	}
	var answer wire.PlanAttachResponse
	if err := v.pure("PlanAttach", request, &answer); err != nil {
		return nil, err
	}
	a := new(plan.Attachment)
	if err := json.Unmarshal(answer.Attachment, a); err != nil {
		return nil, fmt.Errorf("%s's driver: its attachment: %w", v.config.Name, err)
	}
	for i := range a.Files {
		identify(&a.Files[i], r.PlanRequest)
	}
	if a.Device == "" || len(a.Device) > maxID {
		err = fmt.Errorf("the device's id has %d bytes", len(a.Device))
	}
	if err = errors.Join(err, judgeFiles(a.Files, r.PlanRequest), place(r, a.Slot)); err != nil {
		return nil, fmt.Errorf("%s's driver: its attachment: %w", v.config.Name, err)
	}
	return a, nil
}

// place writes the slot that the driver has chosen into the specification.
func place(r vmm.PlugRequest, slot uint32) error {
	if r.Network {
		return placeIn(r.Spec.GetNetworks(), r.Index, slot, func(n *specv1.NetworkInterface) { n.Slot = &slot })
	}
	return placeIn(r.Spec.GetDisks(), r.Index, slot, func(d *specv1.Disk) { d.Slot = &slot })
}

// slotted is a disk or an interface.
type slotted interface {
	comparable
	GetSlot() uint32
}

func placeIn[D slotted](devices []D, index int, slot uint32, set func(D)) error {
	for i := range devices {
		if own := spec.Slot(devices, i); i == index && spec.HasSlot(devices[i]) && own != int(slot) || i != index && own == int(slot) {
			return fmt.Errorf("it chose slot %d, and device %d has slot %d", slot, i, own)
		}
	}
	set(devices[index])
	return nil
}

// PlanDetach has the driver plan a device's end.
func (v *VMM) PlanDetach(r vmm.PlugRequest) (*plan.Detachment, error) {
	request, err := plug(r)
	if err != nil {
		return nil, err
	}
	var answer wire.PlanDetachResponse
	if err := v.pure("PlanDetach", request, &answer); err != nil {
		return nil, err
	}
	d := new(plan.Detachment)
	if err := json.Unmarshal(answer.Detachment, d); err != nil {
		return nil, fmt.Errorf("%s's driver: its detachment: %w", v.config.Name, err)
	}
	if d.Device == "" || len(d.Device) > maxID {
		return nil, fmt.Errorf("%s's driver: its detachment: the device's id has %d bytes", v.config.Name, len(d.Device))
	}
	if d.DiskName != "" && !slices.ContainsFunc(r.Spec.GetDisks(), func(k *specv1.Disk) bool { return k.GetName() == d.DiskName }) {
		return nil, fmt.Errorf("%s's driver: its detachment: the VM has no disk %.80q", v.config.Name, d.DiskName)
	}
	return d, nil
}
