package convert

import (
	"fmt"
	"slices"
	"strings"

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

// MountedVolume is the volume that the VM's pod mounts for its memory from the start: that which
// the guest goes on from, else HibernationVolume. nil: none.
func MountedVolume(vmi *kubevirtv1.VirtualMachineInstance) *kubevirtv1.UtilityVolume {
	image := RestoreFrom(vmi)
	if image == nil {
		return HibernationVolume(vmi)
	}
	volumes := HibernationVolumes(vmi)
	i := slices.IndexFunc(volumes, func(v *kubevirtv1.UtilityVolume) bool { return v.ClaimName == image.ClaimName })
	if i < 0 {
		return nil
	}
	return volumes[i]
}

// BlockDisks says which disks of an instance keep its memory from being saved, and what to do; empty:
// none. A resume has to know that nobody has written to a disk since, and a block device does not show
// that. block says of a claim whether it has volumeMode Block.
func BlockDisks(vmi *kubevirtv1.VirtualMachineInstance, block func(claim string) bool) string {
	var all []string
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		disk := slices.ContainsFunc(vmi.Spec.Domain.Devices.Disks, func(d kubevirtv1.Disk) bool { return d.Name == v.Name })
		if claim := ClaimName(v); disk && claim != "" && block(claim) {
			all = append(all, fmt.Sprintf("volume %s on claim %s", v.Name, claim))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "the guest has disks on claims with volumeMode Block (" + strings.Join(all, ", ") + "), which don't show whether anybody has written " +
		"to them since a save, so that it could not be resumed: use claims with volumeMode Filesystem, or hibernateStrategy.mode: SuspendToDisk"
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
