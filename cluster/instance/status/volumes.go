package status

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/spec"
)

// volumeStatuses are the instance's volumes as they are when it comes to a phase.
func volumeStatuses(v *view.View, phase kubevirtv1.Phase) []kubevirtv1.VolumeStatus {
	targets := diskNames(v.Instance)
	recorded := make(map[string]kubevirtv1.VolumeStatus)
	for _, s := range v.Instance.Status.DeepCopy().VolumeStatus {
		recorded[s.Name] = s
	}
	var all []kubevirtv1.VolumeStatus
	for i := range v.Instance.Spec.Volumes {
		volume := &v.Instance.Spec.Volumes[i]
		s := recorded[volume.Name]
		s.Name, s.Target, s.Phase = volume.Name, targets[volume.Name], volumePending
		if volume.ContainerDisk != nil && s.ContainerDiskVolume == nil {
			s.ContainerDiskVolume = &kubevirtv1.ContainerDiskInfo{}
		}
		if volume.EmptyDisk != nil {
			s.Size = volume.EmptyDisk.Capacity.Value()
		}
		if claim := v.Claims[convert.ClaimName(volume)]; claim != nil {
			s.PersistentVolumeClaimInfo, s.Size = claimInfo(claim), convert.ClaimSize(claim)
			if claim.Status.Phase == corev1.ClaimBound {
				s.Phase = volumeBound
			}
		}
		if phase == kubevirtv1.PhaseRunning {
			s.Phase = volumeReady
		}
		all = append(all, s)
		delete(recorded, volume.Name)
	}
	return append(all, utilityStatuses(v, recorded)...)
}

// diskNames are the names that the guest's kernel gives to its disks, by volume: vda, vdb on
// virtio, sda, sdb on the others, in the order of the list.
func diskNames(vmi *kubevirtv1.VirtualMachineInstance) map[string]string {
	names, next := make(map[string]string), make(map[string]int)
	for i := range vmi.Spec.Domain.Devices.Disks {
		d := &vmi.Spec.Domain.Devices.Disks[i]
		prefix := "sd"
		if busOf(d, vmi) == kubevirtv1.DiskBusVirtio {
			prefix = "vd"
		}
		names[d.Name] = prefix + letters(next[prefix])
		next[prefix]++
	}
	return names
}

func busOf(d *kubevirtv1.Disk, vmi *kubevirtv1.VirtualMachineInstance) kubevirtv1.DiskBus {
	var bus kubevirtv1.DiskBus
	switch {
	case d.CDROM != nil:
		bus = d.CDROM.Bus
	case d.LUN != nil:
		bus = d.LUN.Bus
	case d.Disk != nil:
		bus = d.Disk.Bus
	}
	return cmp.Or(bus, convert.DiskBus(vmi, configuration.Configuration{}, cmp.Or(vmi.Spec.Architecture, spec.ArchAMD64)))
}

// letters counts as Linux names disks: a, b, …, z, aa, ab.
func letters(n int) string {
	name := ""
	for n++; n > 0; n = (n - 1) / 26 {
		name = string(rune('a'+(n-1)%26)) + name
	}
	return name
}
