package convert

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// HibernationVolume is the volume that the guest's memory is saved to: the last utility volume of
// that type, as one that an earlier hibernation left stands before it. nil: there is none.
func HibernationVolume(vmi *kubevirtv1.VirtualMachineInstance) *kubevirtv1.UtilityVolume {
	volumes := HibernationVolumes(vmi)
	if len(volumes) == 0 {
		return nil
	}
	return volumes[len(volumes)-1]
}

// HibernationVolumes are all utility volumes of that type, in their order.
func HibernationVolumes(vmi *kubevirtv1.VirtualMachineInstance) (volumes []*kubevirtv1.UtilityVolume) {
	for i := range vmi.Spec.UtilityVolumes {
		if v := &vmi.Spec.UtilityVolumes[i]; v.Type != nil && *v.Type == kubevirtv1.UtilityHibernation {
			volumes = append(volumes, v)
		}
	}
	return volumes
}

// RestoreFrom is what the guest goes on from; nil: it boots.
func RestoreFrom(vmi *kubevirtv1.VirtualMachineInstance) *kubevirtv1.SavedImage {
	if s := vmi.Spec.StartStrategy; s == nil || *s != kubevirtv1.StartRestore {
		return nil
	}
	return vmi.Spec.RestoreFrom
}

// AttachedImage is what the guest goes on from if the claim that has it is attached to the VM's pod until
// the guest runs; nil: it boots, or its pod mounts the claim.
func AttachedImage(vmi *kubevirtv1.VirtualMachineInstance) *kubevirtv1.SavedImage {
	if image := RestoreFrom(vmi); image != nil && image.Attached {
		return image
	}
	return nil
}

// MountedVolume is the volume that the VM's pod mounts for its memory from the start: that which
// the guest goes on from, else HibernationVolume. nil: none.
func MountedVolume(vmi *kubevirtv1.VirtualMachineInstance) *kubevirtv1.UtilityVolume {
	image := RestoreFrom(vmi)
	switch {
	case image == nil:
		return HibernationVolume(vmi)
	case image.Attached:
		return nil
	}
	return ImageVolume(vmi)
}

// ImageVolume is the volume that the guest goes on from; nil: it boots, or does so already.
func ImageVolume(vmi *kubevirtv1.VirtualMachineInstance) *kubevirtv1.UtilityVolume {
	image, volumes := RestoreFrom(vmi), HibernationVolumes(vmi)
	if image == nil {
		return nil
	}
	i := slices.IndexFunc(volumes, func(v *kubevirtv1.UtilityVolume) bool { return v.ClaimName == image.ClaimName })
	if i < 0 {
		return nil
	}
	return volumes[i]
}

// AwaitsSave: the VM is to be saved when its node shuts down. Its pod has the claim for that.
func AwaitsSave(vmi *kubevirtv1.VirtualMachineInstance) bool {
	s := vmi.Spec.EvictionStrategy
	return s != nil && *s == kubevirtv1.EvictionHibernate && MountedVolume(vmi) != nil
}

// DiskClaims are the claims of an instance's disks, by the names of their volumes.
func DiskClaims(vmi *kubevirtv1.VirtualMachineInstance) map[string]string {
	all := make(map[string]string)
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		disk := slices.ContainsFunc(vmi.Spec.Domain.Devices.Disks, func(d kubevirtv1.Disk) bool { return d.Name == v.Name })
		if claim := ClaimName(v); disk && claim != "" {
			all[v.Name] = claim
		}
	}
	return all
}

// RecordedBlock says of a claim whether it has volumeMode Block, by the status of an instance whose
// disk is on it.
func RecordedBlock(vmi *kubevirtv1.VirtualMachineInstance) func(claim string) bool {
	return func(claim string) bool {
		return slices.ContainsFunc(vmi.Status.VolumeStatus, func(s kubevirtv1.VolumeStatus) bool {
			c := s.PersistentVolumeClaimInfo
			return c != nil && c.ClaimName == claim && c.VolumeMode != nil && *c.VolumeMode == corev1.PersistentVolumeBlock
		})
	}
}
