package lifecycle

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/action"
	"github.com/vmlet/vmlet/cluster/instance/guest"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/contract"
)

// podLabels are the labels of VMs' pods that are not the instance's, or are other pods'.
var podLabels = []string{contract.LabelAttachedTo, contract.LabelApp, contract.LabelCreatedBy, contract.LabelInstanceID, contract.LabelInstanceName, contract.LabelNodeName}

// SharedLabels are the labels that the pod has of the instance.
func SharedLabels(vmi *kubevirtv1.VirtualMachineInstance) map[string]string {
	all := maps.Clone(vmi.Labels)
	maps.DeleteFunc(all, func(key, _ string) bool { return slices.Contains(podLabels, key) })
	return all
}

// labelKeys is the value of contract.AnnotationLabels.
func labelKeys(labels map[string]string) string {
	return strings.Join(slices.Sorted(maps.Keys(labels)), ",")
}

// relabelled: the instance's labels have changed since the pod got them.
func relabelled(p *corev1.Pod, vmi *kubevirtv1.VirtualMachineInstance) bool {
	shared := SharedLabels(vmi)
	for key, value := range shared {
		if has, is := p.Labels[key]; !is || has != value {
			return true
		}
	}
	return p.Annotations[contract.AnnotationLabels] != labelKeys(shared)
}

// SetLabels gives the pod the instance's labels, and takes those away that it had of it
// before. Labels that others have put on the pod stay.
func SetLabels(p *corev1.Pod, shared map[string]string) {
	p.Labels, p.Annotations = OrEmpty(p.Labels), OrEmpty(p.Annotations)
	for _, key := range strings.Split(p.Annotations[contract.AnnotationLabels], ",") {
		if _, still := shared[key]; !still && !slices.Contains(podLabels, key) {
			delete(p.Labels, key)
		}
	}
	maps.Copy(p.Labels, shared)
	p.Annotations[contract.AnnotationLabels] = labelKeys(shared)
}

// OrEmpty is a copy of a map that can be written to.
func OrEmpty(m map[string]string) map[string]string {
	all := make(map[string]string, len(m)+1)
	maps.Copy(all, m)
	return all
}

// LabelInstance comes after Running is written, so that it delays nothing.
func LabelInstance(v *view.View) action.Action {
	name := v.Instance.Status.NodeName
	if v.Deleting() || v.Recorded() != kubevirtv1.PhaseRunning || name == "" || v.Instance.Labels[contract.LabelNodeName] == name {
		return nil
	}
	return action.LabelInstance{}
}

// RelabelPod has Services follow the labels of an instance that runs.
func RelabelPod(v *view.View) action.Action {
	p := v.Pod
	if p == nil || p.Gone || p.Deleting() || p.Ended() || p.Relabelled || v.Final() || guest.Taken(v) || !relabelled(p.Pod, v.Instance) {
		return nil
	}
	return action.RelabelPod{Pod: p}
}
