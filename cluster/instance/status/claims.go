package status

import (
	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// Phases of volumes: waiting for their claim, having it, and with a guest that has the disk.
const (
	volumePending = kubevirtv1.VolumePending
	volumeBound   = kubevirtv1.VolumeBound
	volumeReady   = kubevirtv1.VolumeReady
)

const (
	preallocation = "cdi.kubevirt.io/storage.preallocation"
)

func claimInfo(claim *corev1.PersistentVolumeClaim) *kubevirtv1.PersistentVolumeClaimInfo {
	info := &kubevirtv1.PersistentVolumeClaimInfo{
		ClaimName:    claim.Name,
		AccessModes:  claim.Spec.AccessModes,
		VolumeMode:   claim.Spec.VolumeMode,
		Capacity:     claim.Status.Capacity,
		Requests:     claim.Spec.Resources.Requests,
		Preallocated: claim.Annotations[preallocation] == "true",
	}
	if mode := claim.Spec.VolumeMode; mode != nil && *mode == corev1.PersistentVolumeBlock {
		info.FilesystemOverhead = new("0")
	}
	return info
}
