package controller

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		"volumes": pod(func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{VolumeAttributes: many}}}}
		}),
		"a claim": &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"note": long}}},
		"fields":  &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{ManagedFields: make([]metav1.ManagedFieldsEntry, 9999)}},
	} {
		lean := leanPod
		if _, is := o.(*corev1.PersistentVolumeClaim); is {
			lean = leanClaim
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
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1", ContainerStatuses: []corev1.ContainerStatus{{Name: contract.ContainerCompute, ImageID: "sha256:a"}}},
	}
	want := p.DeepCopy()
	p.Spec.Containers[0].Env, p.Spec.Tolerations = []corev1.EnvVar{{Name: "A"}}, []corev1.Toleration{{Key: "a"}}
	if kept, err := leanPod(p); err != nil || !reflect.DeepEqual(kept, want) {
		t.Errorf("kept %+v, want %+v; %v", kept, want, err)
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
