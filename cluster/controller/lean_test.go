package controller

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	instancetypev1 "github.com/vmlet/vmlet/api/instancetype/v1"
	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/launcher"
	"github.com/vmlet/vmlet/cluster/multus"
	"github.com/vmlet/vmlet/contract"
)

// TestLeanSizes: however large a pod or a claim is that somebody makes, little of it is kept.
func TestLeanSizes(t *testing.T) {
	const most = 64 << 10
	long := strings.Repeat("x", 1<<20)
	many := make(map[string]string)
	for i := range 9999 {
		many[fmt.Sprint("vmlet.io/a-", i)] = strings.Repeat("x", 63)
	}
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: contract.ContainerCompute}}}}
		change(p)
		return p
	}
	for name, o := range map[string]any{
		"environment": pod(func(p *corev1.Pod) { p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: long}} }),
		"arguments":   pod(func(p *corev1.Pod) { p.Spec.Containers[0].Args = []string{long} }),
		"image":       pod(func(p *corev1.Pod) { p.Spec.Containers[0].Image = long }),
		"annotations": pod(func(p *corev1.Pod) { p.Annotations = map[string]string{"vmlet.io/x": long, "note": long} }),
		"many":        pod(func(p *corev1.Pod) { p.Annotations = many }),
		"specification": pod(func(p *corev1.Pod) {
			p.Annotations = map[string]string{contract.AnnotationSpecification: long, contract.AnnotationPreparation: long}
		}),
		"affinity": pod(func(p *corev1.Pod) { p.Spec.NodeSelector = many }),
		"owners":   pod(func(p *corev1.Pod) { p.OwnerReferences = make([]metav1.OwnerReference, 9999) }),
		"an owner": pod(func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Name: long, Controller: new(true)}}
		}),
		"finalizers": pod(func(p *corev1.Pod) {
			for i := range 9999 {
				p.Finalizers = append(p.Finalizers, fmt.Sprint("example.com/", i))
			}
		}),
		"containers": pod(func(p *corev1.Pod) {
			p.Spec.Containers = slices.Repeat([]corev1.Container{{Name: strings.Repeat("x", 63), Image: strings.Repeat("x", 50)}}, 9999)
		}),
		"claims of a pod": pod(func(p *corev1.Pod) {
			of := corev1.PersistentVolumeClaimVolumeSource{ClaimName: strings.Repeat("x", 63)}
			p.Spec.Volumes = slices.Repeat([]corev1.Volume{{Name: strings.Repeat("x", 63), VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &of}}}, 9999)
		}),
		"selector":        &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{Selector: &metav1.LabelSelector{MatchLabels: many}}},
		"modes":           &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{AccessModes: slices.Repeat([]corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, 9999)}},
		"source":          &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{DataSourceRef: &corev1.TypedObjectReference{Name: long}}},
		"an instancetype": &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "instancetype.kubevirt.io/v1", Kind: instancetypev1.KindInstancetype}, ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"note": long}, Labels: many}},
		"a DataVolume": &unstructured.Unstructured{Object: map[string]any{
			"kind": "DataVolume", "metadata": map[string]any{"annotations": map[string]any{"note": long}}, "spec": map[string]any{"source": long},
			"status": map[string]any{"phase": long, "more": long, "conditions": slices.Repeat([]any{map[string]any{"type": "Running", "message": long}}, 99)},
		}},
		"volumes": pod(func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{VolumeAttributes: many}}}}
		}),
		"a claim": &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"note": long}}},
		"fields":  &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{ManagedFields: make([]metav1.ManagedFieldsEntry, 9999)}},
	} {
		lean := leanPod
		switch o.(type) {
		case *corev1.PersistentVolumeClaim:
			lean = leanClaim
		case *metav1.PartialObjectMetadata, *unstructured.Unstructured:
			lean = leanOthers
		}
		kept, err := lean(o)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := json.Marshal(kept); err != nil || len(text) > most {
			t.Errorf("%s: %d bytes are kept, want %d at most; %v", name, len(text), most, err)
		}
	}
}

// TestLeanKeeps: what controllers read of a pod of vmlet's is kept.
func TestLeanKeeps(t *testing.T) {
	cpu := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "virt-launcher-web-1", UID: "uid", Finalizers: []string{contract.FinalizerPod, "example.com/other"},
			Labels: map[string]string{contract.LabelApp: contract.LabelAppLauncher, "tier": "front"},
			Annotations: map[string]string{
				contract.AnnotationDomain: "web", contract.AnnotationMemoryOverhead: "1", contract.AnnotationLabels: "tier",
				contract.AnnotationImportSource: "a", contract.AnnotationImportRestarts: "1", multus.AnnotationStatus: "[]",
			},
			OwnerReferences: []metav1.OwnerReference{{Name: "web", Controller: new(true)}},
		},
		Spec: corev1.PodSpec{
			NodeName: "node",
			Volumes:  []corev1.Volume{{Name: launcher.VolumeTarget, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "memory"}}}},
			Containers: []corev1.Container{{
				Name: contract.ContainerCompute, Image: "vmlet", Resources: corev1.ResourceRequirements{Requests: cpu, Limits: cpu},
				VolumeMounts: []corev1.VolumeMount{{Name: launcher.VolumeTarget, MountPath: contract.HibernationFolder}},
				Ports:        []corev1.ContainerPort{{Name: contract.NodeAPIPort, ContainerPort: 8083}},
			}},
			InitContainers: []corev1.Container{{Name: "disk", Image: "disk:1"}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1", ContainerStatuses: []corev1.ContainerStatus{{Name: contract.ContainerCompute, ImageID: "sha256:a"}},
			EphemeralContainerStatuses: []corev1.ContainerStatus{{Name: "debug", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}},
	}
	want := p.DeepCopy()
	p.Spec.Containers[0].Env, p.Spec.Tolerations = []corev1.EnvVar{{Name: "A"}}, []corev1.Toleration{{Key: "a"}}
	if kept, err := leanPod(p); err != nil || !reflect.DeepEqual(kept, want) {
		t.Errorf("kept %+v, want %+v; %v", kept, want, err)
	}
}

// TestLeanClaimKeeps: what controllers read of a claim is kept.
func TestLeanClaimKeeps(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "disk", UID: "uid", Annotations: map[string]string{contract.AnnotationImport: "{}"}, OwnerReferences: []metav1.OwnerReference{{Name: "web", Controller: new(true)}}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany, corev1.ReadWriteOnce}, VolumeName: "volume", StorageClassName: new("fast"), VolumeMode: new(corev1.PersistentVolumeBlock),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}},
	}
	want := claim.DeepCopy()
	claim.Annotations["note"], claim.Spec.Selector = "a", &metav1.LabelSelector{}
	if kept, err := leanClaim(claim); err != nil || !reflect.DeepEqual(kept, want) {
		t.Errorf("kept %+v, want %+v; %v", kept, want, err)
	}
}

// TestLeanDataVolumeKeeps: what a VM goes by of a DataVolume is kept; of other objects all but who owns which field.
func TestLeanDataVolumeKeeps(t *testing.T) {
	object := func(kind string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": kind, "spec": map[string]any{"source": "a"},
			"metadata": map[string]any{"name": "disk", "ownerReferences": []any{map[string]any{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "web", "uid": "uid", "controller": true}}},
			"status":   map[string]any{"phase": "Failed", "conditions": []any{map[string]any{"type": "Running", "status": "False", "reason": "Error", "message": "gone"}}},
		}}
	}
	volume, want := object("DataVolume"), object("DataVolume")
	unstructured.RemoveNestedField(want.Object, "spec")
	want.SetAnnotations(map[string]string{})
	if _, err := leanOthers(volume); err != nil || !reflect.DeepEqual(volume, want) {
		t.Errorf("kept %v, want %v; %v", volume, want, err)
	}
	other := object("Other")
	if _, err := leanOthers(other); err != nil || !reflect.DeepEqual(other, object("Other")) {
		t.Errorf("kept of another object %v; %v", other, err)
	}
}

// TestLeanKubeVirt: the object that counts is whole; of another namespace's its name and status are kept.
func TestLeanKubeVirt(t *testing.T) {
	object := func(namespace string) *kubevirtv1.KubeVirt {
		kv := &kubevirtv1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kubevirt", UID: "uid"}}
		kv.Annotations, kv.Labels, kv.Finalizers = map[string]string{"note": "a"}, map[string]string{"app": "a"}, []string{"example.org/a"}
		kv.OwnerReferences = []metav1.OwnerReference{{Name: "a"}}
		kv.Spec.Infra, kv.Status.Phase = &kubevirtv1.ComponentConfig{}, "Deployed"
		return kv
	}
	other := object("team")
	other.Annotations, other.Labels, other.Finalizers, other.OwnerReferences, other.Spec = nil, nil, nil, nil, kubevirtv1.KubeVirtSpec{}
	for _, want := range []*kubevirtv1.KubeVirt{object("config"), other} {
		whole := object(want.Namespace)
		whole.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
		if kept, err := leanKubeVirt("config")(whole); err != nil || !reflect.DeepEqual(kept, want) {
			t.Errorf("of namespace %s is kept %+v, want %+v; %v", want.Namespace, kept, want, err)
		}
	}
}

// TestTypesAreReadLive: instancetypes and preferences may be large, and only their names are cached.
func TestTypesAreReadLive(t *testing.T) {
	live := make(map[string]bool)
	for _, o := range clientOptions().Cache.DisableFor {
		live[typeOf(o)] = true
	}
	for _, kind := range []string{
		instancetypev1.KindInstancetype, instancetypev1.KindClusterInstancetype, instancetypev1.KindPreference, instancetypev1.KindClusterPreference,
	} {
		if !live[kind] {
			t.Errorf("the client reads each %s from a cache", kind)
		}
	}
}

// TestLeanMachine: of what kubectl apply notes on a VM the key alone is kept, so that no patch removes it
// with the last other annotation.
func TestLeanMachine(t *testing.T) {
	vm := &kubevirtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "note": "a"}}}
	want := map[string]string{corev1.LastAppliedConfigAnnotation: "", "note": "a"}
	if _, err := leanMachine(vm); err != nil || !reflect.DeepEqual(vm.Annotations, want) {
		t.Errorf("kept %v, want %v; %v", vm.Annotations, want, err)
	}
}
