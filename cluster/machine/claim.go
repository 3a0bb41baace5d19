package machine

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/machine/action"
	"github.com/vmlet/vmlet/cluster/machine/run"
	"github.com/vmlet/vmlet/contract"
)

const (
	// stateRoom bounds what devices and video memory take of an image, beside the guest's memory.
	stateRoom = 512 << 20
	// overlayRoom is counted for what a guest has written over a container disk or an ephemeral
	// volume: how much that is nobody knows beforehand. The node looks before the guest stops.
	overlayRoom = 1 << 30
	mib         = 1 << 20
)

// roomFor is how large a claim has to be for what is saved of a guest: its memory, its devices'
// state, and the disks that are made in its pod, with 5.5 % for the claim's file system.
func roomFor(instance *kubevirtv1.VirtualMachineInstance) int64 {
	s := &instance.Spec
	bytes := int64(stateRoom)
	if m := s.Domain.Memory; m != nil && m.Guest != nil {
		bytes = sum(bytes, m.Guest.Value())
	}
	for _, v := range s.Volumes {
		switch {
		case v.EmptyDisk != nil:
			bytes = sum(bytes, v.EmptyDisk.Capacity.Value())
		case v.ContainerDisk != nil, v.Ephemeral != nil:
			bytes = sum(bytes, overlayRoom)
		}
	}
	bytes = sum(bytes, bytes/1000*55)
	return sum(bytes, mib-1) / mib * mib
}

// sum is at most the largest number: users may have written any.
func sum(a, b int64) int64 {
	if b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + max(b, 0)
}

func quantity(bytes int64) string { return resource.NewQuantity(bytes, resource.BinarySI).String() }

const (
	// longestClaim is the most bytes that the name of a claim has that is made here. Provisioners make
	// others of it, for directories among others, which are longer.
	longestClaim = 63
	// longestBefore is what earlier versions had in place of longestClaim: they kept 200 bytes of a VM's name.
	longestBefore = 221
)

// claimName is that of a claim that is made for a VM's memory. It follows from what it is for, so
// that the claim is not made twice.
func claimName(vm *kubevirtv1.VirtualMachine, what string, longest int) string {
	end := "-hibernate-" + digest(string(vm.UID)+"/"+what)
	return strings.TrimRight(vm.Name[:min(len(vm.Name), longest-len(end))], "-.") + end
}

func digest(text string) string {
	hash := sha256.Sum256([]byte(text))
	return hex.EncodeToString(hash[:5])
}

// volumeName is that of the utility volume on a claim.
func volumeName(claim string) string { return "hibernate-" + digest(claim) }

// keptClaims are the names of those that a VM may have over its life. It has one of them: the other
// one takes its place when it is too small, or has an image that is discarded by a start. A VM with a
// long name may have one from an earlier version.
func keptClaims(vm *kubevirtv1.VirtualMachine) (names []string) {
	for _, longest := range []int{longestClaim, longestBefore} {
		for _, what := range []string{"kept", "kept too"} {
			if name := claimName(vm, what, longest); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// onceClaim is the name of a claim that is made for one hibernation.
func onceClaim(vm *kubevirtv1.VirtualMachine, began metav1.Time) string {
	return claimName(vm, began.UTC().Format("20060102T150405Z"), longestClaim)
}

// namedClaim is the claim that the VM's user has named, or empty.
func namedClaim(vm *kubevirtv1.VirtualMachine) string {
	if s := vm.Spec.HibernateStrategy; s != nil {
		return s.ClaimName
	}
	return ""
}

// newClaim returns a claim for what is saved of a guest. The VM owns it.
func newClaim(v View, name string, room int64) *corev1.PersistentVolumeClaim {
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
	case slices.Contains(claimNames(v.VM), name):
		return fmt.Sprintf("claim %s is a disk of the VM: name another one", name)
	case size < room:
		return fmt.Sprintf("claim %s has %s, and the guest's memory with what belongs to it needs %s (%s for its devices, %s for each container disk and ephemeral volume, the capacity of empty disks, 5.5 %% for the file system): enlarge it, or name another one",
			name, quantity(size), quantity(room), quantity(stateRoom), quantity(overlayRoom))
	}
	return ""
}

// mountsEarly: the VM's pods have the claim for its memory from their start, so that a save doesn't
// wait for it.
func mountsEarly(v View, instance *kubevirtv1.VirtualMachineInstance) bool {
	configured := v.VM.Spec.HibernateStrategy != nil || v.evictionStrategy(instance) == kubevirtv1.EvictionHibernate
	return configured && v.mode() == kubevirtv1.HibernateSave && v.unsaveable(instance) == ""
}

// Mount gives an instance that boots the claim for its memory, and returns what has to be made and
// what is needed no more. An image that the start discards stays until the guest runs. Without a
// claim that suits the guest starts all the same: the save says what is wrong.
func Mount(v View, instance *kubevirtv1.VirtualMachineInstance) (first []action.Action) {
	complete := instance.DeepCopy()
	v.Defaults(complete)
	if !mountsEarly(v, complete) {
		return nil
	}
	room, discarded := roomFor(complete), discardedClaim(v)
	if name := namedClaim(v.VM); name != "" {
		if v.unsuitable(name, room) == "" {
			instance.Spec.UtilityVolumes = []kubevirtv1.UtilityVolume{utilityVolume(name)}
		}
		return nil
	}
	chosen := ""
	for _, name := range keptClaims(v.VM) {
		if name != discarded && v.madeClaim(v.Claims[name]) && v.unsuitable(name, room) == "" {
			chosen = name
			break
		}
	}
	for _, name := range keptClaims(v.VM) {
		switch {
		case chosen == "" && v.Claims[name] == nil && !v.Claimless:
			chosen = name
			first = append(first, action.CreateClaim{Claim: newClaim(v, name, room)})
		case name != chosen && name != discarded:
			first = append(first, v.discard(name)...)
		}
	}
	if chosen != "" {
		instance.Spec.UtilityVolumes = []kubevirtv1.UtilityVolume{utilityVolume(chosen)}
	}
	return first
}

// discardedClaim has an image that a boot discards; empty: there is none.
func discardedClaim(v View) string {
	if s := v.VM.Status.HibernationStatus; s != nil && s.Image != nil {
		return s.Image.ClaimName
	}
	return ""
}

func utilityVolume(claim string) kubevirtv1.UtilityVolume {
	kind := kubevirtv1.UtilityHibernation
	return kubevirtv1.UtilityVolume{
		Name: volumeName(claim), Type: &kind,
		PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}
}

// MemoryClaims are the names of claims that have the guest's memory, or may have it.
func MemoryClaims(v View) []string {
	names := []string{namedClaim(v.VM)}
	template := &kubevirtv1.VirtualMachineInstance{Spec: v.VM.Spec.Template.Spec}
	if v.VM.Status.HibernationStatus != nil || v.VM.Spec.HibernateStrategy != nil || v.evictionStrategy(template) == kubevirtv1.EvictionHibernate {
		names = append(names, keptClaims(v.VM)...)
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
