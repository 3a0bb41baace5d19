package scene

import (
	"errors"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/contract"
)

// Time is when a scene is observed.
var Time = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// Scene is what is observed, as a table's row changes it.
type Scene struct{ *view.View }

// New is an instance that nothing has been done for.
func New() Scene {
	vmi := &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Namespace: Namespace, Name: VM, UID: "uid-0001", Generation: 1, Finalizers: []string{contract.FinalizerInstance},
		CreationTimestamp: metav1.NewTime(Time.Add(-time.Minute)),
	}}
	return Scene{&view.View{Now: Time, Instance: vmi, Claims: make(map[string]*corev1.PersistentVolumeClaim)}}
}

// RecordedAs has the status be as it would have been written in this state, with a phase.
func (s Scene) RecordedAs(phase kubevirtv1.Phase) Scene {
	for _, p := range []kubevirtv1.Phase{kubevirtv1.PhasePending, kubevirtv1.PhaseScheduling, kubevirtv1.PhaseScheduled, kubevirtv1.PhaseRunning} {
		s.Instance.Status.PhaseTransitionTimestamps = append(s.Instance.Status.PhaseTransitionTimestamps,
			kubevirtv1.PhaseTransition{Phase: p, PhaseTransitionTimestamp: metav1.NewTime(Time)})
		if p == phase {
			break
		}
	}
	s.Instance.Status.Phase = phase
	return s
}

// WithPod gives the instance a pod.
func (s Scene) WithPod(change ...func(*view.Pod)) Scene {
	made, _ := MakePod(s.Instance, nil)
	made.UID = "p-1"
	p := &view.Pod{Pod: made, Host: view.Host{Node: view.Node{Exists: true, Ready: corev1.ConditionTrue, Since: Time.Add(-time.Hour)}}}
	for _, f := range change {
		f(p)
	}
	s.Pod = p
	return s
}

// Then changes the pod after all else.
func (s Scene) Then(change ...func(*view.Pod)) Scene {
	for _, f := range change {
		f(s.Pod)
	}
	return s
}

// WithOther adds a pod of an earlier instance.
func (s Scene) WithOther(change ...func(*view.Pod)) Scene {
	t := New().WithPod(change...)
	t.Pod.Labels[contract.LabelCreatedBy] = "uid-0000"
	s.Others = append(s.Others, t.Pod)
	return s
}

// Change changes the instance.
func (s Scene) Change(changes ...func(*kubevirtv1.VirtualMachineInstance)) Scene {
	for _, f := range changes {
		f(s.Instance)
	}
	return s
}

// Deleted has the instance be deleted.
func (s Scene) Deleted() Scene {
	return s.Change(func(v *kubevirtv1.VirtualMachineInstance) { v.DeletionTimestamp = &metav1.Time{Time: Time} })
}

// On is a scene with a pod that has all of this.
func On(phase kubevirtv1.Phase, change ...func(*view.Pod)) Scene {
	return New().WithPod(change...).RecordedAs(phase)
}

func NoFinalizer(v *kubevirtv1.VirtualMachineInstance) { v.Finalizers = nil }

func Grace(seconds int64) func(*kubevirtv1.VirtualMachineInstance) {
	return func(v *kubevirtv1.VirtualMachineInstance) { v.Spec.TerminationGracePeriodSeconds = &seconds }
}

func Strategy(by kubevirtv1.EvictionStrategy) func(*kubevirtv1.VirtualMachineInstance) {
	return func(v *kubevirtv1.VirtualMachineInstance) { v.Spec.EvictionStrategy = &by }
}

const (
	Namespace = "shop"
	VM        = "web"
)

func MakePod(vmi *kubevirtv1.VirtualMachineInstance, _ map[string]*corev1.PersistentVolumeClaim) (*corev1.Pod, error) {
	if vmi.Annotations["refuse"] != "" {
		return nil, errors.New("spec.domain.cpu: " + vmi.Annotations["refuse"])
	}
	labels := maps.Clone(vmi.Labels)
	if labels == nil {
		labels = make(map[string]string)
	}
	labels[contract.LabelApp], labels[contract.LabelCreatedBy], labels[contract.LabelInstanceID] = contract.LabelAppLauncher, string(vmi.UID), vmi.Name
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: contract.ContainerCompute, Image: "vmlet:1"}}}
	if v := convert.MountedVolume(vmi); v != nil {
		spec.Volumes = []corev1.Volume{{Name: v.Name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &v.PersistentVolumeClaimVolumeSource}}}
		spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: v.Name, MountPath: contract.HibernationFolder}}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: vmi.Namespace, Name: PodName(vmi), Labels: labels,
			Annotations: map[string]string{contract.AnnotationDomain: vmi.Name, contract.AnnotationMemoryOverhead: "33554432"},
			Finalizers:  []string{contract.FinalizerPod},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vmi,
				schema.GroupVersionKind{Group: kubevirtv1.Group, Version: kubevirtv1.Version, Kind: "VirtualMachineInstance"})},
		},
		Spec: spec,
	}, nil
}

func PodName(vmi *kubevirtv1.VirtualMachineInstance) string {
	return "virt-launcher-" + vmi.Name + "-" + string(vmi.UID[len(vmi.UID)-4:])
}

// Container is the id of the container that runs the VM.
const Container = "containerd://0123"
