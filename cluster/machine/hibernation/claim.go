package hibernation

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/machine/action"
	"github.com/vmlet/vmlet/cluster/machine/run"
	"github.com/vmlet/vmlet/contract"
)

// NewClaim returns a claim for what is saved of a guest. The VM owns it.
func NewClaim(v View, name string, room int64) *corev1.PersistentVolumeClaim {
	mode := corev1.PersistentVolumeFilesystem
	size := *resource.NewQuantity(room, resource.BinarySI)
	// What is no quantity is none: hibernation does not fail for it.
	if asked, err := resource.ParseQuantity(v.VM.Annotations[contract.AnnotationHibernationSize]); err == nil && asked.Cmp(size) > 0 {
		size = asked
	}
	class := v.Cluster.Hibernation.StorageClassName
	if s := v.VM.Spec.HibernateStrategy; s != nil && s.StorageClassName != nil {
		class = s.StorageClassName
	}
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v.VM.Namespace, Name: name,
			Labels:          map[string]string{contract.LabelHibernationOf: string(v.VM.UID)},
			OwnerReferences: []metav1.OwnerReference{run.OwnedBy(v.VM)},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: &mode, StorageClassName: class,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
		},
	}
}

// madeClaim reports whether a claim was made for this VM's memory: no other is ever deleted.
func (v View) madeClaim(claim *corev1.PersistentVolumeClaim) bool {
	return claim != nil && claim.Labels[contract.LabelHibernationOf] == string(v.VM.UID) && metav1.IsControlledBy(claim, v.VM)
}

// discard deletes a claim that was made for this VM's memory, if it is there.
func (v View) discard(name string) []action.Action {
	claim := v.Claims[name]
	if !v.madeClaim(claim) || claim.DeletionTimestamp != nil {
		return nil
	}
	return []action.Action{action.DeleteClaim{Claim: claim}}
}

// dispose deletes the claim that was made for a hibernation alone.
func (v View) dispose(s *kubevirtv1.HibernationStatus) []action.Action {
	if !s.ClaimCreated || s.ClaimName == "" {
		return nil
	}
	return v.discard(s.ClaimName)
}

// unsuitable says why a guest can't be saved to a claim, and what to do; empty: it can.
func (v View) unsuitable(name string, room int64) string {
	claim := v.Claims[name]
	if claim == nil {
		return fmt.Sprintf("claim %s does not exist: make it, with volumeMode Filesystem and at least %s, or leave hibernateStrategy.claimName out", name, quantity(room))
	}
	size := claim.Spec.Resources.Requests.Storage().Value()
	if capacity, bound := claim.Status.Capacity[corev1.ResourceStorage]; bound {
		size = capacity.Value()
	}
	maker := claim.Labels[contract.LabelHibernationOf]
	switch {
	case claim.DeletionTimestamp != nil:
		return fmt.Sprintf("claim %s is being deleted: name another one in hibernateStrategy.claimName", name)
	case claim.Status.Phase == corev1.ClaimLost:
		return fmt.Sprintf("claim %s has lost its volume: name another one in hibernateStrategy.claimName", name)
	case claim.Spec.VolumeMode != nil && *claim.Spec.VolumeMode != corev1.PersistentVolumeFilesystem:
		return fmt.Sprintf("claim %s has volumeMode %s, and memory is saved to files: name one with Filesystem", name, *claim.Spec.VolumeMode)
	case !slices.ContainsFunc(claim.Spec.AccessModes, func(m corev1.PersistentVolumeAccessMode) bool { return m != corev1.ReadOnlyMany }):
		return fmt.Sprintf("claim %s can only be read, by its accessModes: name one with ReadWriteOnce or ReadWriteMany", name)
	case maker != "" && maker != string(v.VM.UID):
		return fmt.Sprintf("claim %s was made for the memory of another VM: name one of this VM alone", name)
	case v.Users[name] != "":
		return fmt.Sprintf("claim %s is used by %s: name one of this VM alone", name, v.Users[name])
	case slices.Contains(run.ClaimNames(v.VM), name):
		return fmt.Sprintf("claim %s is a disk of the VM: name another one", name)
	case size < room:
		return fmt.Sprintf("claim %s has %s, and the guest's memory with what belongs to it needs %s (%s for its devices, %s for each container disk and ephemeral volume, the capacity of empty disks, 5.5 %% for the file system): enlarge it, or name another one",
			name, quantity(size), quantity(room), quantity(stateRoom), quantity(overlayRoom))
	}
	return ""
}

// MemoryClaims are the names of claims that have the guest's memory, or may have it.
func MemoryClaims(v View) []string {
	names := []string{NamedClaim(v.VM)}
	template := &kubevirtv1.VirtualMachineInstance{Spec: v.VM.Spec.Template.Spec}
	if v.VM.Status.HibernationStatus != nil || v.VM.Spec.HibernateStrategy != nil || v.evictionStrategy(template) == kubevirtv1.EvictionHibernate {
		names = append(names, KeptClaims(v.VM)...)
	}
	if s := v.VM.Status.HibernationStatus; s != nil {
		names = append(names, s.ClaimName)
	}
	if image := savedImage(v.Own); image != nil {
		names = append(names, image.ClaimName)
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
}
