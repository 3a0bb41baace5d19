package controller

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	instancetypev1 "github.com/vmlet/vmlet/api/instancetype/v1"
	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/multus"
	"github.com/vmlet/vmlet/contract"
)

// Bounds on what the cache keeps of an object that anybody may make, in bytes or in number.
const (
	maxValue      = 16 << 10 // of all annotations
	maxLabels     = 16 << 10 // of all labels
	maxFinalizers = 4 << 10  // of all finalizers
	maxOwners     = 16
	maxText       = 512 // of an image's name, an owner or a condition; names of images have 456 at most
	maxContainers = 300 // a VM of 256 container disks has 258
	maxVolumes    = 300 // which are claims
	maxConditions = 16
)

// leanPod leaves of a pod what controllers read. Anyone who may make pods may make large ones. What is
// written of such an object is a patch, never the whole.
func leanPod(o any) (any, error) {
	p, is := o.(*corev1.Pod)
	if !is {
		return o, nil
	}
	leanMetadata(p)
	s := p.Spec
	p.Spec = corev1.PodSpec{
		NodeName: s.NodeName, Volumes: leanVolumes(s.Volumes),
		Containers: leanContainers(s.Containers), InitContainers: leanContainers(s.InitContainers),
	}
	return p, nil
}

// leanContainers leaves names and images, and of the VM's container and the agent's what is read besides.
func leanContainers(all []corev1.Container) (lean []corev1.Container) {
	for _, c := range all[:min(len(all), maxContainers)] {
		l := corev1.Container{Name: c.Name, Image: clip(c.Image)}
		if c.Name == contract.ContainerCompute {
			l.Resources.Requests, l.Resources.Limits = sizes(c.Resources.Requests), sizes(c.Resources.Limits)
		}
		for _, m := range c.VolumeMounts {
			if m.MountPath == contract.HibernationFolder {
				l.VolumeMounts = []corev1.VolumeMount{{Name: m.Name, MountPath: contract.HibernationFolder}}
			}
		}
		for _, port := range c.Ports {
			if port.Name == contract.NodeAPIPort {
				l.Ports = []corev1.ContainerPort{{Name: contract.NodeAPIPort, ContainerPort: port.ContainerPort}}
			}
		}
		lean = append(lean, l)
	}
	return lean
}

// sizes are what a resize looks at.
func sizes(l corev1.ResourceList) corev1.ResourceList {
	cpu, has := l[corev1.ResourceCPU]
	if !has {
		return nil
	}
	return corev1.ResourceList{corev1.ResourceCPU: cpu.DeepCopy()}
}

// leanVolumes leaves the claims.
func leanVolumes(all []corev1.Volume) (lean []corev1.Volume) {
	for _, v := range all {
		if claim := v.PersistentVolumeClaim; claim != nil && len(lean) < maxVolumes {
			l := corev1.Volume{Name: v.Name}
			l.PersistentVolumeClaim = claim.DeepCopy()
			lean = append(lean, l)
		}
	}
	return lean
}

// leanClaim leaves of a claim what controllers read.
func leanClaim(o any) (any, error) {
	c, is := o.(*corev1.PersistentVolumeClaim)
	if !is {
		return o, nil
	}
	leanMetadata(c)
	s := c.Spec
	c.Spec = corev1.PersistentVolumeClaimSpec{VolumeName: s.VolumeName, VolumeMode: s.VolumeMode, StorageClassName: s.StorageClassName}
	for _, mode := range s.AccessModes {
		if !slices.Contains(c.Spec.AccessModes, mode) {
			c.Spec.AccessModes = append(c.Spec.AccessModes, mode)
		}
	}
	if size, has := s.Resources.Requests[corev1.ResourceStorage]; has {
		c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: size}
	}
	return c, nil
}

// leanOthers leaves of a DataVolume what controllers read, of an instancetype or a preference, whose metadata
// alone is cached, its name, and of all else all but who owns which field.
func leanOthers(o any) (any, error) {
	switch of := o.(type) {
	case *unstructured.Unstructured:
		if of.GetKind() == "DataVolume" {
			leanDataVolume(of)
		}
	case *metav1.PartialObjectMetadata:
		if of.GroupVersionKind().Group == instancetypev1.Group {
			of.Annotations, of.Labels = nil, nil
		}
	}
	return cache.TransformStripManagedFields()(o)
}

func leanDataVolume(u *unstructured.Unstructured) {
	leanMetadata(u)
	var conditions []any
	all, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range all[:min(len(all), maxConditions)] {
		fields, _ := c.(map[string]any)
		lean := make(map[string]any)
		for _, key := range []string{"type", "status", "reason", "message"} {
			text, _ := fields[key].(string)
			lean[key] = clip(text)
		}
		conditions = append(conditions, lean)
	}
	phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
	delete(u.Object, "spec")
	u.Object["status"] = map[string]any{"phase": clip(phase), "conditions": conditions}
}

// leanKubeVirt leaves of the KubeVirt objects of other namespaces, which configure nothing, what says that they
// are there.
func leanKubeVirt(configuration string) func(any) (any, error) {
	return func(o any) (any, error) {
		if kv, is := o.(*kubevirtv1.KubeVirt); is {
			kv.ManagedFields = nil
			if kv.Namespace != configuration {
				kv.Annotations, kv.Labels, kv.OwnerReferences, kv.Finalizers = nil, nil, nil, nil
				kv.Spec = kubevirtv1.KubeVirtSpec{}
			}
		}
		return o, nil
	}
}

// leanMachine leaves out what kubectl apply keeps of a VM, or its instance, beside it. Its key stays: a
// patch that removes the last other annotation would remove all.
func leanMachine(o any) (any, error) {
	if m, is := o.(client.Object); is {
		m.SetManagedFields(nil)
		if annotations := m.GetAnnotations(); annotations[corev1.LastAppliedConfigAnnotation] != "" {
			annotations[corev1.LastAppliedConfigAnnotation] = ""
		}
	}
	return o, nil
}

// leanMetadata bounds what is kept of labels, owners and finalizers, and keeps of annotations those that are
// read. A patch replaces all finalizers: of a pod that has more of them than the bound all go at its end.
func leanMetadata(o client.Object) {
	o.SetManagedFields(nil)
	o.SetAnnotations(ours(o.GetAnnotations()))
	size := 0
	for key, value := range o.GetLabels() {
		size += len(key) + len(value)
	}
	if size > maxLabels {
		o.SetLabels(ours(o.GetLabels()))
	}
	if finalizers := o.GetFinalizers(); len(strings.Join(finalizers, "")) > maxFinalizers {
		o.SetFinalizers(slices.DeleteFunc(finalizers, func(f string) bool { return f != contract.FinalizerPod }))
	}
	owners := o.GetOwnerReferences()
	many := len(owners) > maxOwners
	o.SetOwnerReferences(slices.DeleteFunc(owners, func(r metav1.OwnerReference) bool {
		return len(r.APIVersion+r.Kind+r.Name)+len(r.UID) > maxText || many && (r.Controller == nil || !*r.Controller)
	}))
}

// ours are the labels or annotations that vmlet, KubeVirt and CDI name, and the answer of Multus.
func ours(all map[string]string) map[string]string {
	left, kept := maxValue, make(map[string]string)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		domain, _, _ := strings.Cut(key, "/")
		own := domain == vmletDomain || domain == kubevirtDomain || strings.HasSuffix(domain, "."+vmletDomain) || strings.HasSuffix(domain, "."+kubevirtDomain) ||
			key == multus.AnnotationStatus
		if size := len(key) + len(all[key]); own && size <= left && key != contract.AnnotationSpecification && key != contract.AnnotationPreparation {
			kept[key] = all[key]
			left -= size
		}
	}
	return kept
}

const vmletDomain, kubevirtDomain = "vmlet.io", "kubevirt.io"

// clip is a text that does not hold on to a longer one.
func clip(text string) string { return strings.Clone(text[:min(len(text), maxText)]) }
