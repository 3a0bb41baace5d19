package qemu

import (
	"maps"
	"slices"
	"strings"

	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/spec"
)

// chooseMachine resolves the machine type to a versioned one: an image is
// restored on the very type it was saved on, whatever the alias means by then.
func (b *builder) chooseMachine() bool {
	name := b.spec.GetMachineType()
	if image := b.req.Image; image != nil {
		name = image.Manifest.MachineType
	}
	machine, found := b.details.Machine(name)
	if !found {
		b.faults.Add("machineType", "%q is not a machine type of QEMU %s: this node has %s", name, b.req.Info.Version, b.machineNames())
		return false
	}
	b.machine, b.family = machine, familyOf(machine.Name)
	if b.family == familyUnknown {
		b.faults.Add("machineType", "%s is not supported: want q35, pc or microvm on amd64, virt on arm64", machine.Name)
		return false
	}
	b.bus = layoutOf(b.family)
	b.checkVCPUs()
	return true
}

// checkVCPUs is for those that it boots with and those that are plugged in.
func (b *builder) checkVCPUs() {
	field, vcpus, most := "cpu", spec.VCPUs(b.spec.GetCpu()), spec.VCPULimit(b.spec.GetCpu())
	if most > vcpus {
		field = "cpu.maxVcpus"
		if !b.machine.HotplugCPUs {
			b.faults.Add(field, "the machine type %s takes no vCPUs while it runs: leave it out", b.machine.Name)
		}
	}
	if int(most) > b.machine.MaxCPUs {
		b.faults.Add(field, "%d vCPUs: the machine type %s has at most %d", most, b.machine.Name, b.machine.MaxCPUs)
	}
}

// machineNames lists the aliases, which is what people write.
func (b *builder) machineNames() string {
	var names []string
	for _, m := range b.details.Machines {
		if family := familyOf(m.Name); family == familyMicroVM || family != familyUnknown && m.Alias != "" {
			names = append(names, orElse(m.Alias, m.Name))
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ") + " and versions of these"
}

func orElse(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

func (b *builder) chooseAccelerator() {
	accel, tried := b.details.Accelerators[b.req.Hypervisor]
	switch {
	case !tried:
		b.faults.Add("hypervisor", "%q can't be used by QEMU at %s: this node has %s",
			b.req.Hypervisor, b.req.Info.Binary, strings.Join(slices.Sorted(maps.Keys(b.details.Accelerators)), ", "))
	case accel.Failure != "":
		b.faults.Add("hypervisor", "QEMU can't use %s on this node: %s", b.req.Hypervisor, accel.Failure)
	}
	b.accel = accel
}

func (b *builder) machineArgs() {
	machine := []string{"dump-guest-core", "off", "suppress-vmdesc", "on"}
	if b.spec.GetNuma() == nil {
		machine = append([]string{"memory-backend", RAM}, machine...)
	}
	b.checkTimers()
	switch b.family {
	case familyQ35, familyPC:
		// Nothing that a server's guest uses, and each is a device to start and
		// to save.
		machine = append(machine, "usb", "off", "vmport", "off")
		machine = append(machine, b.timers()...)
		if b.lacksSATA() {
			machine = append(machine, "sata", "off")
		}
	case familyVirt:
		machine = append(machine, "gic-version", "max")
	}
	machine = append(machine, b.featureProperties()...)
	if b.spec.GetBoot().GetFirmware() == spec.FirmwareUEFI && b.spec.GetBoot().GetKernel() == nil {
		machine = append(machine, b.flash()...)
	}
	b.acceleratorArgs()
	b.arg("-machine", keyValues(b.machine.Name, machine...))
}

func (b *builder) acceleratorArgs() {
	name := b.req.Accelerator
	if contains(b.details.DeviceAccelerators, name) && b.req.HypervisorDevice != "" {
		device := b.fdset(plan.File{Kind: plan.FilePath, Field: "hypervisor", Path: b.req.HypervisorDevice, Write: true})
		b.arg("-accel", keyValues(name, "device", device))
		return
	}
	b.arg("-accel", name)
}
