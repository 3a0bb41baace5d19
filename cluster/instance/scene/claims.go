package scene

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/claims"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/contract"
)

func OnClaim(v *kubevirtv1.VirtualMachineInstance) {
	v.Spec.Volumes = []kubevirtv1.Volume{{Name: "root", DataVolume: &kubevirtv1.DataVolumeSource{Name: "data"}}}
}

func (s Scene) WithClaim(phase string) Scene {
	is := true
	s.Claims["data"] = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: "data", Annotations: map[string]string{claims.ImportPhase: phase},
		OwnerReferences: []metav1.OwnerReference{{Kind: claims.DataVolumeKind, Name: "data", Controller: &is}},
	}}
	s.Filling = make(map[string]*condition.Fault)
	if claims.ImportOf(s.Claims["data"]) != "" {
		s.Filling["data"] = claims.Unfilled(s.Claims["data"], phase)
	}
	return s
}

func (s Scene) ClaimDeleted() Scene {
	s.Claims["data"].DeletionTimestamp = &metav1.Time{Time: Time}
	return s
}

// Refilling has vmlet fill the claim, and be in a phase of that.
func (s Scene) Refilling(phase string) Scene {
	s.Claims["data"] = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Name: "data", Annotations: map[string]string{contract.AnnotationImport: "http://h/d", contract.AnnotationImportPhase: phase},
	}}
	return s
}

// DiskOn gives an instance a disk on a claim, as changes have it.
func DiskOn(claim string, changes ...func(*kubevirtv1.Disk, *kubevirtv1.Volume)) func(*kubevirtv1.VirtualMachineInstance) {
	return func(vmi *kubevirtv1.VirtualMachineInstance) {
		d := kubevirtv1.Disk{Name: "on-" + claim, Disk: new(kubevirtv1.DiskTarget)}
		v := kubevirtv1.Volume{Name: d.Name, PersistentVolumeClaim: new(kubevirtv1.PersistentVolumeClaimSource)}
		v.PersistentVolumeClaim.ClaimName = claim
		for _, change := range changes {
			change(&d, &v)
		}
		vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, d)
		vmi.Spec.Volumes = append(vmi.Spec.Volumes, v)
	}
}

func ReadOnlyDisk(d *kubevirtv1.Disk, _ *kubevirtv1.Volume) { d.Disk.ReadOnly = true }

func ReadOnlyClaim(_ *kubevirtv1.Disk, v *kubevirtv1.Volume) { v.PersistentVolumeClaim.ReadOnly = true }

func Cdrom(d *kubevirtv1.Disk, _ *kubevirtv1.Volume) {
	d.Disk, d.CDROM = nil, new(kubevirtv1.CDROMTarget)
}

func Lun(d *kubevirtv1.Disk, _ *kubevirtv1.Volume) {
	d.Disk, d.LUN = nil, new(kubevirtv1.LUNTarget)
}

func NoTarget(d *kubevirtv1.Disk, _ *kubevirtv1.Volume) { d.Disk = nil }

func DataVolume(_ *kubevirtv1.Disk, v *kubevirtv1.Volume) {
	v.DataVolume, v.PersistentVolumeClaim = &kubevirtv1.DataVolumeSource{Name: v.PersistentVolumeClaim.ClaimName}, nil
}

func Ephemeral(_ *kubevirtv1.Disk, v *kubevirtv1.Volume) {
	v.Ephemeral = &kubevirtv1.EphemeralSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.PersistentVolumeClaim.ClaimName}}
	v.PersistentVolumeClaim = nil
}

// Another is an instance of another VM, made some time after this one.
func Another(after time.Duration, changes ...func(*kubevirtv1.VirtualMachineInstance)) *kubevirtv1.VirtualMachineInstance {
	vmi := &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Namespace: Namespace, Name: "db", UID: "uid-0002", CreationTimestamp: metav1.NewTime(Time.Add(after)),
	}}
	for _, f := range changes {
		f(vmi)
	}
	return vmi
}

func WaitingFor(reason string) func(*kubevirtv1.VirtualMachineInstance) {
	return func(vmi *kubevirtv1.VirtualMachineInstance) {
		vmi.Status.Conditions = []kubevirtv1.Condition{condition.New(kubevirtv1.ConditionSynchronized, metav1.ConditionFalse, reason, "so")}
	}
}

func Shareable(d *kubevirtv1.Disk, _ *kubevirtv1.Volume) { d.Shareable = new(true) }

// Both makes two changes.
func Both(a, b func(*kubevirtv1.VirtualMachineInstance)) func(*kubevirtv1.VirtualMachineInstance) {
	return func(vmi *kubevirtv1.VirtualMachineInstance) { a(vmi); b(vmi) }
}
