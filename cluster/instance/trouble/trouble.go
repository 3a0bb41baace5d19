package trouble

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/cluster/sentences"
	"github.com/vmlet/vmlet/contract"
)

const (
	// QuietPatience is how long a pod that has a node may start no container, and give no
	// reason, before its events are read: a missing Secret is reported nowhere else.
	QuietPatience = 10 * time.Second
	// QuietInterval is the most between two readings.
	QuietInterval = time.Minute
)

// imageReasons are the kubelet's for a container whose image it has not.
var imageReasons = []string{condition.ReasonImagePull, condition.ReasonImageBackOff, "ErrImageNeverPull", "InvalidImageName", "ImageInspectError", "RegistryUnavailable"}

// Waiting is why a container does not start, as the kubelet says it; nil: it has not
// said that there is a reason.
func Waiting(v *view.View) *condition.Fault {
	for _, c := range slices.Concat(v.Pod.Status.InitContainerStatuses, v.Pod.Status.ContainerStatuses) {
		w := c.State.Waiting
		if w == nil || w.Reason == "" || w.Reason == "ContainerCreating" || w.Reason == "PodInitializing" {
			continue
		}
		message := w.Message
		if last := c.LastTerminationState.Terminated; last != nil && strings.TrimSpace(last.Message) != "" {
			e := contract.ReadEnding(last.Message)
			message = v.FaultWords(e.Faults, e.Message)
		}
		if slices.Contains(imageReasons, w.Reason) {
			return imageFault(v, w.Reason, message, c.Name)
		}
		message = sentences.Steady(condition.Clip(message, 4*condition.MaxMessage))
		return &condition.Fault{Reason: condition.Clip(w.Reason, condition.MaxGuestText), Message: "container " + c.Name + " does not start: " + message}
	}
	return nil
}

// imageFault says which image can't be pulled and what to do. A pull is tried again and
// fails again, which is no news: the reason stays that of the wait. Where the kubelet has
// forgotten the cause, the message stays that of the pull before: the condition has it.
func imageFault(v *view.View, reason, said, container string) *condition.Fault {
	was := condition.Find(v.Instance.Status.Conditions, kubevirtv1.ConditionSynchronized)
	tried := was != nil && slices.Contains(imageReasons, was.Reason)
	if tried && was.Reason == condition.ReasonImageBackOff && reason == condition.ReasonImagePull {
		reason = was.Reason
	}
	cause := sentences.PullCause(said)
	if cause == "" && tried {
		return &condition.Fault{Reason: reason, Message: was.Message}
	}
	image := imageOf(v.Pod.Pod, container)
	advice := "it is vmlet's own, which the cluster's administrator chooses, and imagePullSecrets in the KubeVirt object"
	if at := imageField(&v.Instance.Spec, image); at != "" {
		advice = "correct " + at + ".image, or set " + at + ".imagePullSecret if the registry asks for credentials"
	}
	return &condition.Fault{Reason: reason, Message: "image " + condition.Clip(image, condition.MaxGuestText) + " can't be pulled: " + advice + "; the node says: " + cmp.Or(cause, said)}
}

func imageOf(p *corev1.Pod, container string) string {
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		if c.Name == container {
			return c.Image
		}
	}
	return "of container " + container
}

// imageField is what of the instance names an image; empty: nothing.
func imageField(s *kubevirtv1.VirtualMachineInstanceSpec, image string) string {
	for i, v := range s.Volumes {
		if v.ContainerDisk != nil && v.ContainerDisk.Image == image {
			return fmt.Sprintf("spec.volumes[%d].containerDisk", i)
		}
	}
	f := s.Domain.Firmware
	if f != nil && f.KernelBoot != nil && f.KernelBoot.Container != nil && f.KernelBoot.Container.Image == image {
		return "spec.domain.firmware.kernelBoot.container"
	}
	return ""
}

// QuietSince is since when a pod has had a node whose kubelet has neither run a container nor said
// why not; zero: it does not wait for that.
func QuietSince(v *view.View) time.Time {
	p := v.Pod
	if p == nil || p.Gone || !p.Bound() || p.Deleting() || p.Ended() || v.Recorded() != kubevirtv1.PhaseScheduling {
		return time.Time{}
	}
	if _, runs := p.Runs(); runs || Waiting(v) != nil {
		return time.Time{}
	}
	if c := view.PodCondition(p.Pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionTrue && !c.LastTransitionTime.IsZero() {
		return c.LastTransitionTime.Time
	}
	return p.CreationTimestamp.Time
}

// Suspicious: the pod has been quiet for long enough to read its events.
func Suspicious(v *view.View) bool {
	since := QuietSince(v)
	return !since.IsZero() && !v.Now.Before(since.Add(QuietPatience))
}

// NextReading is when the events of a quiet pod are read next: ever more rarely.
func NextReading(v *view.View) time.Time {
	since := QuietSince(v)
	first := since.Add(QuietPatience)
	if since.IsZero() || v.Now.Before(first) {
		return first
	}
	return v.Now.Add(min(max(v.Now.Sub(since), QuietPatience), QuietInterval))
}
