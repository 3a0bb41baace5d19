package cloudhypervisor

import (
	"fmt"

	"github.com/vmlet/vmlet/plan"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
)

// vfioFolder has the nodes of IOMMU groups. The VMM's user may open those of the
// VM's devices alone.
const vfioFolder = "/dev/vfio"

// hostDevices hands devices of the host over by VFIO. The VMM opens the nodes of
// their IOMMU groups itself, by name.
func (b *builder) hostDevices() {
	devices := b.spec.GetHostDevices()
	if len(devices) == 0 {
		return
	}
	if b.req.Image != nil {
		b.faults.Add("hostDevices", "an image has none of their state: start the VM cold, or restore one without them")
	}
	if b.spec.GetDevices().GetBalloon() {
		b.lacks("devices.balloon", "with hostDevices it would give back pages that a device still reaches: want false")
	}
	for i, d := range devices {
		out := chapi.Device{PCI: placeOfHostDevice(i)}
		out.ID = fmt.Sprintf("host%d", i)
		switch device := d.GetDevice().(type) {
		case *specv1.HostDevice_PciAddress:
			out.Path = "/sys/bus/pci/devices/" + device.PciAddress
		case *specv1.HostDevice_Mdev:
			out.Path = "/sys/bus/mdev/devices/" + device.Mdev
		}
		b.hosts = append(b.hosts, out)
	}
}

// tpm is connected to through the socket itself, no matter who may enter its folder; again
// each time the guest is reset.
func (b *builder) tpm() {
	tpm := b.spec.GetDevices().GetTpm()
	if tpm == nil {
		return
	}
	if model := tpm.GetModel(); model != "" && model != spec.TPMCRB {
		b.lacks("devices.tpm.model", "%q: cloud-hypervisor has no other than tpm-crb: want that", model)
	}
	if b.req.Image != nil {
		b.faults.Add("devices.tpm", "an image has none of its state: start the VM cold, or restore one without it")
	}
	b.config.TPM = &chapi.TPM{Socket: b.own(plan.File{Kind: plan.FileSocket, Field: "devices.tpm.socket", Path: tpm.GetSocket()})}
}

// RefuseSave refuses a VM with a TPM, whose registers and commands under way are not
// in a snapshot (devices/src/tpm.rs), nor is what the emulator keeps.
func (CloudHypervisor) RefuseSave(s *specv1.VirtualMachineSpec) (faults spec.FieldErrors) {
	if s.GetDevices().GetTpm() != nil {
		faults.Add("devices.tpm", "cloud-hypervisor doesn't save a TPM's state, as QEMU does: stop the VM instead")
	}
	return faults
}
