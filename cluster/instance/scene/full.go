package scene

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/claims"
)

// Full is a VM that runs and has all that a status tells of.
func Full() Scene {
	s := New().Change(func(v *kubevirtv1.VirtualMachineInstance) {
		memory := resource.MustParse("2Gi")
		v.Spec.Domain.Memory = &kubevirtv1.Memory{Guest: &memory}
		v.Spec.Domain.Devices.Interfaces = []kubevirtv1.Interface{{Name: "default", Masquerade: &kubevirtv1.InterfaceMasquerade{}}}
		v.Spec.Networks = []kubevirtv1.Network{{Name: "default", Pod: &kubevirtv1.PodNetwork{}}}
		v.Spec.Domain.Devices.Disks = []kubevirtv1.Disk{
			{Name: "root", Disk: &kubevirtv1.DiskTarget{Bus: kubevirtv1.DiskBusVirtio}},
			{Name: "data", Disk: &kubevirtv1.DiskTarget{Bus: kubevirtv1.DiskBusSATA}},
			{Name: "seed", CDROM: &kubevirtv1.CDROMTarget{}},
			{Name: "scratch", Disk: &kubevirtv1.DiskTarget{Bus: kubevirtv1.DiskBusVirtio}},
		}
		v.Spec.Volumes = []kubevirtv1.Volume{
			{Name: "root", ContainerDisk: &kubevirtv1.ContainerDiskSource{Image: "debian"}},
			{Name: "data", DataVolume: &kubevirtv1.DataVolumeSource{Name: "data"}},
			{Name: "seed", CloudInitNoCloud: &kubevirtv1.CloudInitSource{}},
			{Name: "scratch", EmptyDisk: &kubevirtv1.EmptyDiskSource{Capacity: resource.MustParse("1Gi")}},
		}
		v.Status.VirtualMachineRevisionName = "revision-start-vm-x-1"
		v.Status.Conditions = []kubevirtv1.Condition{{Type: kubevirtv1.ConditionDataVolumesReady, Status: metav1.ConditionTrue, Reason: "AllDVsReady"}}
	}).WithClaim(claims.ImportSucceeded)
	block := corev1.PersistentVolumeBlock
	s.Claims["data"].Spec = corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: &block,
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}
	s.Claims["data"].Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1100Mi")}
	return s.WithPod(RunsSince(2*time.Second), Heard(Running), PodReady, GuestSays).RecordedAs(kubevirtv1.PhaseScheduling)
}
