package qemu

import (
	"fmt"

	"github.com/vmlet/vmlet/plan"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// hostDevices hands devices of the host over by VFIO. QEMU opens the nodes of their
// IOMMU groups itself, by name: a group can be opened once only.
func (b *builder) hostDevices() {
	devices := b.spec.GetHostDevices()
	if len(devices) == 0 {
		return
	}
	if b.onMicroVM() {
		b.faults.Add("hostDevices", "the machine type microvm has no PCI for them: use q35")
		return
	}
	if b.req.Image != nil {
		b.faults.Add("hostDevices", "an image has none of their state: start the VM cold, or restore one without them")
	}
	for i, d := range devices {
		o := options{"driver": "vfio-pci", "id": fmt.Sprintf("host%d", i)}
		switch device := d.GetDevice().(type) {
		case *specv1.HostDevice_PciAddress:
			o["host"] = device.PciAddress
		case *specv1.HostDevice_Mdev:
			o["sysfsdev"] = "/sys/bus/mdev/devices/" + device.Mdev
		}
		b.device(fmt.Sprintf("hostDevices[%d]", i), b.bus.place(o, slotsHost(), i))
	}
}

// tpm connects to the emulator that an administrator has started. Its state is a
// part of QEMU's device state (backends/tpm/tpm_emulator.c): it is saved and
// given back to whatever emulator listens there then.
func (b *builder) tpm() {
	tpm := b.spec.GetDevices().GetTpm()
	driver := tpmDriver(tpm.GetModel(), b.details.Arch)
	switch {
	case b.onMicroVM():
		b.faults.Add("devices.tpm", "the machine type microvm has none: use q35")
		return
	case driver == "":
		b.faults.Add("devices.tpm.model", "the machine type %s has no %s: want %s", b.machine.Name, tpm.GetModel(), spec.TPMTIS)
		return
	}
	fd := b.file(plan.File{Kind: plan.FileConnect, Field: "devices.tpm.socket", Path: tpm.GetSocket()})
	b.arg("-chardev", keyValues("socket", "id", "tpm", "fd", fd))
	b.arg("-tpmdev", keyValues("emulator", "id", "tpm-backend", "chardev", "tpm"))
	b.device("devices.tpm.model", options{"driver": driver, "id": "tpm-device", "tpmdev": "tpm-backend"})
}

// tpmDriver is QEMU's device for a model; empty: there is none.
func tpmDriver(model, arch string) string {
	switch {
	case arch != spec.ArchARM64:
		return model
	case model == spec.TPMTIS:
		return "tpm-tis-device"
	}
	return ""
}
