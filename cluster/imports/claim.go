package imports

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/launcher"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/launch/location"
)

// AnnotationCloneStrategy on a StorageClass says how CDI clones its claims; with CloneByStorage the
// storage does.
const (
	AnnotationCloneStrategy = "cdi.kubevirt.io/clone-strategy"
	CloneByStorage          = "csi-clone"
)

// overhead is what a filesystem takes, in thousandths of its volume: of a claim of 1000 a guest gets
// the rest, as the importer makes its disk.
const overhead = 55

const mebibyte = 1 << 20

// Origin is what is known of the claim that is copied.
type Origin struct {
	// Claim is nil if none is copied.
	Claim *corev1.PersistentVolumeClaim
	// Class is the claim's; nil: it is unknown.
	Class *storagev1.StorageClass
	// User is a pod that may write to it; empty: none does.
	User string
}

// Claim is that of a VM's template, which vmlet fills. owner is the VM.
func Claim(vm *kubevirtv1.VirtualMachine, t *kubevirtv1.DataVolumeTemplateSpec, owner metav1.OwnerReference, from Origin) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: vm.Namespace, Name: t.Name,
			Labels: maps.Clone(t.Labels), Annotations: maps.Clone(t.Annotations),
			OwnerReferences: []metav1.OwnerReference{owner},
		},
		Spec: claimSpec(&t.Spec, from.Claim),
	}
	if claim.Labels == nil {
		claim.Labels = make(map[string]string)
	}
	if claim.Annotations == nil {
		claim.Annotations = make(map[string]string)
	}
	from.suggest(claim.Labels)
	claim.Labels[contract.LabelCreatedBy] = string(vm.UID)
	claim.Annotations[contract.AnnotationImport] = describe(&t.Spec)
	claim.Annotations[contract.AnnotationImportPhase] = contract.ImportPending
	switch {
	case StorageFills(&t.Spec):
		claim.Annotations[contract.AnnotationImport] = "by the storage"
		claim.Annotations[contract.AnnotationImportPhase] = contract.ImportClone
	case from.clones(claim):
		claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: from.Claim.Name}
		claim.Spec.StorageClassName = from.Claim.Spec.StorageClassName
		claim.Annotations[contract.AnnotationImportPhase] = contract.ImportClone
	}
	return claim
}

// suggest adds the instancetype and preference that the copied claim names for its guest, where the
// template names none.
func (o Origin) suggest(labels map[string]string) {
	if o.Claim == nil {
		return
	}
	suggest(labels, o.Claim.Labels)
}

// suggest adds to a claim's labels the instancetype and preference that from names, each with its kind or
// without one, where the labels name none.
func suggest(labels, from map[string]string) {
	for name, kind := range map[string]string{
		contract.LabelDefaultInstancetype: contract.LabelDefaultInstancetypeKind,
		contract.LabelDefaultPreference:   contract.LabelDefaultPreferenceKind,
	} {
		if labels[name] != "" {
			continue
		}
		for _, key := range []string{name, kind} {
			if value := from[key]; value != "" {
				labels[key] = value
			}
		}
	}
}

// suggested are the labels that the environment of an imported container image has for its claim. The
// image's author is not trusted: what is no label's value is left out.
func suggested(p *corev1.Pod) map[string]string {
	for i := range p.Status.InitContainerStatuses {
		c := &p.Status.InitContainerStatuses[i]
		if c.Name != launcher.DiskImageContainer || c.State.Terminated == nil {
			continue
		}
		var said map[string]string
		if json.Unmarshal([]byte(c.State.Terminated.Message), &said) != nil {
			return nil
		}
		maps.DeleteFunc(said, func(_, value string) bool { return len(validation.IsValidLabelValue(value)) > 0 })
		return said
	}
	return nil
}

// StorageFills: the template itself names what the storage makes the volume of.
func StorageFills(d *kubevirtv1.DataVolumeSpec) bool {
	switch {
	case d.Source != nil || d.SourceRef != nil:
		return false
	case d.PVC != nil:
		return d.PVC.DataSource != nil || d.PVC.DataSourceRef != nil
	}
	return d.Storage != nil && (d.Storage.DataSource != nil || d.Storage.DataSourceRef != nil)
}

// clones: the storage makes the copy. It is asked to only where its class says that it can, and what is
// copied is at rest: else a pod makes the copy, later.
func (o Origin) clones(claim *corev1.PersistentVolumeClaim) bool {
	if o.Claim == nil || o.Class == nil || o.User != "" || filling(o.Claim) || o.Class.Annotations[AnnotationCloneStrategy] != CloneByStorage {
		return false
	}
	class, size := claim.Spec.StorageClassName, claim.Spec.Resources.Requests.Storage()
	capacity := o.Claim.Status.Capacity[corev1.ResourceStorage]
	return (class == nil || *class == o.Class.Name) && mode(claim) == mode(o.Claim) && size.Cmp(capacity) >= 0
}

func mode(claim *corev1.PersistentVolumeClaim) corev1.PersistentVolumeMode {
	if m := claim.Spec.VolumeMode; m != nil {
		return *m
	}
	return corev1.PersistentVolumeFilesystem
}

// claimSpec is a template's claim: as pvc has it, or as storage has it with what that leaves open.
func claimSpec(d *kubevirtv1.DataVolumeSpec, from *corev1.PersistentVolumeClaim) corev1.PersistentVolumeClaimSpec {
	if d.PVC != nil {
		return *d.PVC.DeepCopy()
	}
	s := d.Storage.DeepCopy()
	spec := corev1.PersistentVolumeClaimSpec{
		AccessModes: s.AccessModes, Selector: s.Selector, Resources: s.Resources, VolumeName: s.VolumeName,
		StorageClassName: s.StorageClassName, VolumeMode: s.VolumeMode, DataSource: s.DataSource, DataSourceRef: s.DataSourceRef,
	}
	if len(spec.AccessModes) == 0 {
		spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	}
	if spec.VolumeMode == nil {
		spec.VolumeMode = new(corev1.PersistentVolumeFilesystem)
	}
	if spec.Resources.Requests == nil {
		spec.Resources.Requests = make(corev1.ResourceList)
	}
	size, asked := spec.Resources.Requests[corev1.ResourceStorage]
	switch {
	case !asked && from != nil:
		spec.Resources.Requests[corev1.ResourceStorage] = sizeOf(from)
	case *spec.VolumeMode == corev1.PersistentVolumeFilesystem:
		spec.Resources.Requests[corev1.ResourceStorage] = *resource.NewQuantity(inflate(size.Value()), resource.BinarySI)
	}
	return spec
}

// sizeOf is a claim's capacity or what it asks for.
func sizeOf(claim *corev1.PersistentVolumeClaim) resource.Quantity {
	if capacity, bound := claim.Status.Capacity[corev1.ResourceStorage]; bound {
		return capacity
	}
	return claim.Spec.Resources.Requests[corev1.ResourceStorage]
}

// inflate is how large a volume is whose filesystem has a disk of a size, in whole MiB.
func inflate(size int64) int64 {
	const share = 1000 - overhead
	if size > math.MaxInt64/1000-mebibyte {
		return size
	}
	bytes := (size + mebibyte) * 1000 / share // the disk has whole MiB, too
	return (bytes + mebibyte - 1) / mebibyte * mebibyte
}

// describe says what a claim is imported from, without what may be secret.
func describe(d *kubevirtv1.DataVolumeSpec) string {
	switch s := d.Source; {
	case s == nil:
		return "nothing"
	case s.HTTP != nil:
		u, err := location.URL(s.HTTP.URL)
		if err != nil {
			return "http"
		}
		return "http " + clip(location.Public(u), 512)
	case s.Registry != nil:
		return "registry " + clip(launcher.ImportedImage(s.Registry), 512)
	case s.PVC != nil:
		return "pvc " + clip(s.PVC.Name, 253)
	}
	return "blank"
}

// fingerprint tells sources apart.
func fingerprint(d *kubevirtv1.DataVolumeSpec) string {
	text, err := json.Marshal(d.Source)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(text, "%v", d.Preallocation != nil && *d.Preallocation))
	return hex.EncodeToString(sum[:8])
}
