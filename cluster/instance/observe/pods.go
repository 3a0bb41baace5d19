package observe

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/view"
)

// instance is the one of this name, as it is in the cache or was written later; nil: there is none. If the pods know another than the
// cache, the API server says which is right.
func (r *Observer) instance(ctx context.Context, key types.NamespacedName, pods []corev1.Pod) (*kubevirtv1.VirtualMachineInstance, error) {
	vmi, err := Get(ctx, r.Client, key, new(kubevirtv1.VirtualMachineInstance))
	if err != nil {
		return nil, err
	}
	vmi = r.writes.latest(key, vmi)
	for i := range pods {
		if vmi == nil || view.UIDOf(pods[i].Labels) != vmi.UID {
			return Get(ctx, r.Live, key, new(kubevirtv1.VirtualMachineInstance))
		}
	}
	return vmi, nil
}

// findPod looks for a pod that the instance's status knows, or that may be about to be made,
// and that the cache does not have.
func (r *Observer) findPod(ctx context.Context, v *view.View) error {
	if v.Pod != nil || v.Final() && !v.Deleting() || v.NeverHadPod() && !v.Deleting() {
		return nil
	}
	found, err := r.OwnPod(ctx, v.Instance)
	if err != nil {
		return err
	}
	if v.Pod = r.Vanished(v.Instance); found != nil {
		v.Pod = &view.Pod{Pod: found}
	}
	return nil
}

// Vanished is the pod that the status of an instance names and that is not there; nil: it names
// none, or the VM has ended.
func (r *Observer) Vanished(vmi *kubevirtv1.VirtualMachineInstance) *view.Pod {
	uid, node, had := view.Active(&vmi.Status)
	if !had || view.IsFinal(vmi.Status.Phase) {
		return nil
	}
	return &view.Pod{Gone: true, Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: vmi.Namespace, Name: r.PodName(vmi), UID: uid},
		Spec:       corev1.PodSpec{NodeName: node},
	}}
}

// OwnPod asks the API server for the instance's pod; nil: there is none, or another has its
// name.
func (r *Observer) OwnPod(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance) (*corev1.Pod, error) {
	p, err := Get(ctx, r.Live, types.NamespacedName{Namespace: vmi.Namespace, Name: r.PodName(vmi)}, new(corev1.Pod))
	if p == nil || !r.owns(vmi, p) {
		return nil, err
	}
	return p, nil
}

// owns says whether a pod is the instance's: made for it, and controlled by it, or by nobody and
// named in its status. The garbage collector takes the owner from the pods of an instance that is
// deleted with --cascade=orphan.
func (r *Observer) owns(vmi *kubevirtv1.VirtualMachineInstance, p *corev1.Pod) bool {
	if p.Name != r.PodName(vmi) || view.UIDOf(p.Labels) != vmi.UID || view.SupersededIn(vmi, p) {
		return false
	}
	uid, _, named := view.Active(&vmi.Status)
	return metav1.IsControlledBy(p, vmi) || metav1.GetControllerOf(p) == nil && named && p.UID == uid
}
