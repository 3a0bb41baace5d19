package attach

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/contract"
)

// attachPatience is how long a pod may take to attach a volume before what others say of it is
// taken for a failure: schedulers and kubelets complain of what is settled a moment later.
const attachPatience = 10 * time.Second

// MountedFromStart: the VM's pod mounts the claim for the guest's memory itself.
func MountedFromStart(p *corev1.Pod, claim string) bool {
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		if c.Name != contract.ContainerCompute {
			continue
		}
		at := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == contract.HibernationFolder })
		return at >= 0 && slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
			return v.Name == c.VolumeMounts[at].Name && v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
		})
	}
	return false
}

// Pod is the pod through which a claim is attached to the VM's pod; nil: there is none.
func Pod(v *view.View, claim string) *corev1.Pod {
	for _, p := range v.Attachments {
		if attaches(p, claim) {
			return p
		}
	}
	return nil
}

func attaches(p *corev1.Pod, claim string) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
	})
}

// Attached: the pod hands out the volume on the node of the VM's.
func Attached(p *corev1.Pod, node string) bool {
	if p == nil || p.DeletionTimestamp != nil || p.Spec.NodeName != node {
		return false
	}
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.State.Running != nil })
}

// Ready: the guest's memory can be saved to the volume.
func Ready(v *view.View) bool {
	volume := convert.HibernationVolume(v.Instance)
	if volume == nil || v.Pod == nil || v.Pod.Gone {
		return false
	}
	return MountedFromStart(v.Pod.Pod, volume.ClaimName) || Attached(Pod(v, volume.ClaimName), v.Pod.Spec.NodeName)
}
