package defaults

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// images are pulled again where their tag may be another image tomorrow.
func images(s *kubevirtv1.VirtualMachineInstanceSpec) {
	for i := range s.Volumes {
		if disk := s.Volumes[i].ContainerDisk; disk != nil {
			fill(&disk.ImagePullPolicy, pullPolicy(disk.Image))
		}
	}
	if boot := s.Domain.Firmware.KernelBoot; boot != nil && boot.Container != nil {
		fill(&boot.Container.ImagePullPolicy, pullPolicy(boot.Container.Image))
	}
}

// pullPolicy is Kubernetes' own default for an image.
func pullPolicy(image string) corev1.PullPolicy {
	if strings.Contains(image, "@") {
		return corev1.PullIfNotPresent
	}
	name := image[strings.LastIndex(image, "/")+1:] // a colon before is that of a port
	if _, tag, tagged := strings.Cut(name, ":"); tagged && tag != "latest" {
		return corev1.PullIfNotPresent
	}
	return corev1.PullAlways
}

// podInterface is the name of the interface on the pod's network that guests have who name
// none.
const podInterface = "default"

// Implied adds the devices that a guest has without naming them: an interface on the pod's network,
// a disk for each volume, a tablet if one is asked for. What they are like stays open.
func Implied(s *kubevirtv1.VirtualMachineInstanceSpec) {
	d := &s.Domain.Devices
	attach := d.AutoattachPodInterface == nil || *d.AutoattachPodInterface
	if attach && len(s.Networks) == 0 && len(d.Interfaces) == 0 {
		s.Networks = []kubevirtv1.Network{{Name: podInterface, Pod: &kubevirtv1.PodNetwork{}}}
		d.Interfaces = []kubevirtv1.Interface{{Name: podInterface}}
	}
	for i := range s.Volumes {
		volume := &s.Volumes[i]
		if volume.MemoryDump != nil || volume.ContainerPath != nil || shown(d, volume.Name) {
			continue
		}
		d.Disks = append(d.Disks, kubevirtv1.Disk{Name: volume.Name})
	}
	if d.AutoattachInputDevice != nil && *d.AutoattachInputDevice && len(d.Inputs) == 0 {
		d.Inputs = []kubevirtv1.Input{{Name: "default-0"}}
	}
}

func network(s *kubevirtv1.VirtualMachineInstanceSpec, v values) {
	d := &s.Domain.Devices
	for i := range d.Interfaces {
		nic := &d.Interfaces[i]
		if Bound(nic) || !slices.ContainsFunc(s.Networks, func(n kubevirtv1.Network) bool { return n.Name == nic.Name && n.Pod != nil }) {
			continue
		}
		if v.binding == "bridge" {
			nic.Bridge = &kubevirtv1.InterfaceBridge{}
		} else {
			nic.Masquerade = &kubevirtv1.InterfaceMasquerade{}
		}
	}
}

// Bound says whether an interface names how it is connected.
func Bound(nic *kubevirtv1.Interface) bool {
	return nic.Masquerade != nil || nic.Bridge != nil || nic.SRIOV != nil || nic.PasstBinding != nil ||
		nic.Binding != nil || nic.Slirp != nil || nic.Macvtap != nil || nic.Passt != nil
}

func disks(d *kubevirtv1.Devices, v values) {
	for i := range d.Disks {
		disk := &d.Disks[i]
		if disk.LUN == nil && disk.CDROM == nil {
			fill(&made(&disk.Disk).Bus, v.diskBus)
		}
		if cdrom := disk.CDROM; cdrom != nil {
			fill(&cdrom.Bus, cdromBus(v))
			on(&cdrom.ReadOnly)
			fill(&cdrom.Tray, kubevirtv1.TrayClosed)
		}
	}
}

// cdromBus is the disks', or SCSI where that is virtio, which has no CD-ROMs.
func cdromBus(v values) kubevirtv1.DiskBus {
	if v.diskBus == kubevirtv1.DiskBusVirtio {
		return kubevirtv1.DiskBusSCSI
	}
	return v.diskBus
}

// shown says whether a volume is a disk or a file system of the guest.
func shown(d *kubevirtv1.Devices, volume string) bool {
	return slices.ContainsFunc(d.Disks, func(disk kubevirtv1.Disk) bool { return disk.Name == volume }) ||
		slices.ContainsFunc(d.Filesystems, func(f kubevirtv1.Filesystem) bool { return f.Name == volume })
}

func otherDevices(d *kubevirtv1.Devices) {
	for i := range d.Inputs {
		fill(&d.Inputs[i].Bus, kubevirtv1.InputBusUSB)
		fill(&d.Inputs[i].Type, kubevirtv1.InputTablet)
	}
	if w := d.Watchdog; w != nil && w.Diag288 == nil {
		fill(&made(&w.I6300ESB).Action, kubevirtv1.WatchdogReset)
	}
}
