package controller

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmlet/vmlet/cluster/multus"
	"github.com/vmlet/vmlet/contract"
)

// Bounds on what the cache keeps of an object that anybody may make, in bytes or in number.
const (
	maxValue      = 16 << 10 // of an annotation
	maxLabels     = 32 << 10 // of all labels
	maxOwners     = 16
	maxText       = 1 << 10 // of an image's name
	maxContainers = 600     // a VM of 256 container disks has 258
	maxVolumes    = 1200
)

// leanPod leaves of a pod what controllers read. Whoever may make pods may make large ones. What is
// written of such an object is a patch, never the whole.
func leanPod(o any) (any, error) {
	p, is := o.(*corev1.Pod)
	if !is {
		return o, nil
	}
	leanMetadata(p)
	if len(p.OwnerReferences) > maxOwners {
		p.OwnerReferences = slices.DeleteFunc(p.OwnerReferences, func(r metav1.OwnerReference) bool { return r.Controller == nil || !*r.Controller })
	}
	s := p.Spec
	p.Spec = corev1.PodSpec{
		NodeName: s.NodeName, Volumes: leanVolumes(s.Volumes),
		Containers: leanContainers(s.Containers), InitContainers: leanContainers(s.InitContainers),
	}
	p.Status.EphemeralContainerStatuses = nil
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
	for _, v := range all[:min(len(all), maxVolumes)] {
		if claim := v.PersistentVolumeClaim; claim != nil {
			l := corev1.Volume{Name: v.Name}
			l.PersistentVolumeClaim = claim.DeepCopy()
			lean = append(lean, l)
		}
	}
	return lean
}

// leanClaim leaves of a claim's metadata what controllers read.
func leanClaim(o any) (any, error) {
	if c, is := o.(*corev1.PersistentVolumeClaim); is {
		leanMetadata(c)
	}
	return o, nil
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

// leanMetadata bounds what is kept of labels, and keeps of annotations those that are read. Finalizers
// stay: a patch replaces all of them.
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
