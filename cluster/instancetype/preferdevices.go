package instancetype

import (
	"slices"

	instancetypev1 "github.com/vmlet/vmlet/api/instancetype/v1"
	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/defaults"
)

// devices are filled in by what is preferred, also those that a VM has without naming them.
func devices(s *kubevirtv1.VirtualMachineInstanceSpec, p *instancetypev1.DevicePreferences) {
	d := &s.Domain.Devices
	fillPointer(&d.AutoattachGraphicsDevice, p.PreferredAutoattachGraphicsDevice)
	fillPointer(&d.AutoattachMemBalloon, p.PreferredAutoattachMemBalloon)
	fillPointer(&d.AutoattachPodInterface, p.PreferredAutoattachPodInterface)
	fillPointer(&d.AutoattachSerialConsole, p.PreferredAutoattachSerialConsole)
	fillPointer(&d.AutoattachInputDevice, p.PreferredAutoattachInputDevice)
	defaults.Implied(s)

	fillPointer(&d.UseVirtioTransitional, p.PreferredUseVirtioTransitional)
	fillPointer(&d.BlockMultiQueue, p.PreferredBlockMultiQueue)
	fillPointer(&d.NetworkInterfaceMultiqueue, p.PreferredNetworkInterfaceMultiQueue)
	fillPointer(&d.Rng, p.PreferredRng)
	fillPointer(&d.TPM, p.PreferredTPM)
	if p.PreferredDisableHotplug != nil {
		d.DisableHotplug = *p.PreferredDisableHotplug // unset looks like false
	}
	if p.PreferredVideoType != nil {
		fill(&made(&d.Video).Type, *p.PreferredVideoType)
	}
	if d.Sound != nil {
		fill(&d.Sound.Model, p.PreferredSoundModel)
	}
	for i := range d.GPUs {
		fillPointer(&d.GPUs[i].VirtualGPUOptions, p.PreferredVirtualGPUOptions)
	}
	for i := range d.Disks {
		disk(&d.Disks[i], p)
	}
	for i := range d.Interfaces {
		nic := &d.Interfaces[i]
		fill(&nic.Model, p.PreferredInterfaceModel)
		if !defaults.Bound(nic) && onPodNetwork(s, nic.Name) {
			nic.Masquerade = p.PreferredInterfaceMasquerade
		}
	}
	for i := range d.Inputs {
		fill(&d.Inputs[i].Bus, p.PreferredInputBus)
		fill(&d.Inputs[i].Type, p.PreferredInputType)
		fill(&d.Inputs[i].Type, kubevirtv1.InputTablet) // a VirtualMachine can't be without
	}
	panicDevices(d, p.PreferredPanicDeviceModel)
}

func disk(d *kubevirtv1.Disk, p *instancetypev1.DevicePreferences) {
	switch {
	case d.CDROM != nil:
		fill(&d.CDROM.Bus, p.PreferredCDROMBus)
		return
	case d.LUN != nil:
		fill(&d.LUN.Bus, p.PreferredLUNBus)
		return
	}
	fill(&made(&d.Disk).Bus, p.PreferredDiskBus)
	fill(&d.Cache, p.PreferredDiskCache)
	fill(&d.IO, p.PreferredDiskIO)
	fillPointer(&d.BlockSize, p.PreferredDiskBlockSize)
	if d.Disk.Bus == kubevirtv1.DiskBusVirtio {
		fillPointer(&d.DedicatedIOThread, p.PreferredDiskDedicatedIOThread)
	}
}

func onPodNetwork(s *kubevirtv1.VirtualMachineInstanceSpec, nic string) bool {
	return slices.ContainsFunc(s.Networks, func(n kubevirtv1.Network) bool { return n.Name == nic && n.Pod != nil })
}

// panicDevices are of a model, and one is added where there is none.
func panicDevices(d *kubevirtv1.Devices, model *kubevirtv1.PanicDeviceModel) {
	if model == nil {
		return
	}
	if len(d.PanicDevices) == 0 {
		d.PanicDevices = []kubevirtv1.PanicDevice{{}}
	}
	for i := range d.PanicDevices {
		fillPointer(&d.PanicDevices[i].Model, model)
	}
}
