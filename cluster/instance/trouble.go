package instance

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/contract"
)

const (
	// quietPatience is how long a pod that has a node may start no container, and give no
	// reason, before its events are read: a missing Secret is reported nowhere else.
	quietPatience = 10 * time.Second
	// quietInterval is the most between two readings.
	quietInterval = time.Minute
	// maxMissing is how many missing objects are named.
	maxMissing = 8
)

// imageReasons are the kubelet's for a container whose image it has not.
var imageReasons = []string{condition.ReasonImagePull, condition.ReasonImageBackOff, "ErrImageNeverPull", "InvalidImageName", "ImageInspectError", "RegistryUnavailable"}

// waitingFault is why a container does not start, as the kubelet says it; nil: it has not
// said that there is a reason.
func waitingFault(o *view.View) *condition.Fault {
	for _, c := range slices.Concat(o.Pod.Status.InitContainerStatuses, o.Pod.Status.ContainerStatuses) {
		w := c.State.Waiting
		if w == nil || w.Reason == "" || w.Reason == "ContainerCreating" || w.Reason == "PodInitializing" {
			continue
		}
		message := w.Message
		if last := c.LastTerminationState.Terminated; last != nil && strings.TrimSpace(last.Message) != "" {
			message = contract.ReadEnding(last.Message).Message
		}
		if slices.Contains(imageReasons, w.Reason) {
			return imageFault(o, &condition.Fault{Reason: w.Reason, Message: message}, c.Name)
		}
		message = volatile.ReplaceAllString(backOff.ReplaceAllString(o.InWords(message), "back-off"), "…")
		return &condition.Fault{Reason: condition.Clip(w.Reason, condition.MaxGuestText), Message: "container " + c.Name + " does not start: " + message}
	}
	return nil
}

// imageFault says which image can't be pulled and what to do. A pull is tried again and
// fails again, which is no news; and the kubelet that waits for the next try may have
// forgotten why.
func imageFault(o *view.View, f *condition.Fault, container string) *condition.Fault {
	image := imageOf(o.Pod.Pod, container)
	begin := "image " + condition.Clip(image, condition.MaxGuestText) + " can't be pulled: "
	was := condition.Find(o.Instance.Status.Conditions, kubevirtv1.ConditionSynchronized)
	tried := was != nil && strings.HasPrefix(was.Message, begin)
	switch {
	case tried && was.Reason == condition.ReasonImageBackOff && f.Reason == condition.ReasonImagePull:
		return &condition.Fault{Reason: was.Reason, Message: was.Message}
	case tried && f.Reason == condition.ReasonImageBackOff && !strings.Contains(f.Message, condition.ReasonImagePull):
		return &condition.Fault{Reason: f.Reason, Message: was.Message}
	}
	advice := "it is vmlet's own, which the cluster's administrator chooses, and imagePullSecrets in the KubeVirt object"
	if at := imageField(&o.Instance.Spec, image); at != "" {
		advice = "correct " + at + ".image, or set " + at + ".imagePullSecret if the registry asks for credentials"
	}
	return &condition.Fault{Reason: f.Reason, Message: begin + advice + "; the node says: " + f.Message}
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

// quietSince is since when a pod has had a node whose kubelet has neither run a container nor said
// why not; zero: it does not wait for that.
func quietSince(o *view.View) time.Time {
	p := o.Pod
	if p == nil || p.Gone || !p.Bound() || p.Deleting() || p.Ended() || o.Recorded() != kubevirtv1.PhaseScheduling {
		return time.Time{}
	}
	if _, runs := p.Runs(); runs || waitingFault(o) != nil {
		return time.Time{}
	}
	if c := view.PodCondition(p.Pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionTrue && !c.LastTransitionTime.IsZero() {
		return c.LastTransitionTime.Time
	}
	return p.CreationTimestamp.Time
}

// suspicious: the pod has been quiet for long enough to read its events.
func suspicious(o *view.View) bool {
	since := quietSince(o)
	return !since.IsZero() && !o.Now.Before(since.Add(quietPatience))
}

// nextReading is when the events of a quiet pod are read next: ever more rarely.
func nextReading(o *view.View) time.Time {
	since := quietSince(o)
	first := since.Add(quietPatience)
	if since.IsZero() || o.Now.Before(first) {
		return first
	}
	return o.Now.Add(min(max(o.Now.Sub(since), quietPatience), quietInterval))
}

// missingObject finds what kubelets say of a volume whose source is not there.
var missingObject = regexp.MustCompile(`\b(secret|configmap|serviceaccount)s? "([^"]{1,253})" not found`)

// kindOf is the kind of what missingObject finds.
func kindOf(resource string) string {
	switch resource {
	case "secret":
		return "Secret"
	case "configmap":
		return "ConfigMap"
	}
	return "ServiceAccount"
}

// doesNotStart begins the message about a pod's failures.
const doesNotStart = "the VM's pod does not start: "

// volatile is what runtimes number their tries by.
var volatile = regexp.MustCompile(`\b[0-9a-f]{12,}\b`)

// backOff is how the kubelet says how long it waits, ever longer, for its next try.
var backOff = regexp.MustCompile(`\bback-off (\d+[hms])+\b`)

// eventFault is why a pod does not start, by its events: those that say that something failed,
// unless something has gone on since. nil: they don't say. The same failures, however often and
// in what order they come, make the same fault, which is written once.
func eventFault(events []corev1.Event, namespace string) *condition.Fault {
	var progress time.Time
	for i := range events {
		if e := &events[i]; e.Type == corev1.EventTypeNormal && when(e).After(progress) {
			progress = when(e)
		}
	}
	var missing, words []string
	reasons := make(map[string]string)
	for i := range events {
		e := &events[i]
		if e.Type != corev1.EventTypeWarning || !strings.HasPrefix(e.Reason, "Failed") || when(e).Before(progress) {
			continue
		}
		missing = append(missing, missingIn(e.Message)...)
		word := volatile.ReplaceAllString(condition.Sentence(e.Message), "…")
		words = append(words, word)
		reasons[word] = condition.Clip(e.Reason, condition.MaxGuestText)
	}
	if len(words) == 0 {
		return nil
	}
	if len(missing) > 0 {
		return &condition.Fault{Reason: condition.ReasonFailedMount, Message: lacking(missing, namespace)}
	}
	slices.Sort(words)
	return &condition.Fault{Reason: reasons[words[0]], Message: doesNotStart + words[0]}
}

// missingIn are the objects that a message says are not there.
func missingIn(message string) (missing []string) {
	for _, m := range missingObject.FindAllStringSubmatch(message, maxMissing) {
		missing = append(missing, kindOf(m[1])+" "+m[2])
	}
	return missing
}

// lacking says which objects a namespace lacks, and what to do.
func lacking(missing []string, namespace string) string {
	slices.Sort(missing)
	missing = slices.Compact(missing)
	return "there is no " + strings.Join(missing[:min(len(missing), maxMissing)], ", no ") + " in namespace " + namespace +
		": create it, and the VM starts by itself, or correct the name in the VM"
}

// refusal is why the API server refuses the VM's pod.
func refusal(err error, namespace string) string {
	if missing := missingIn(err.Error()); len(missing) > 0 {
		return lacking(missing, namespace)
	}
	return "the API server refused the VM's pod: " + err.Error()
}

// when is the last time that an event was seen.
func when(e *corev1.Event) time.Time {
	last := e.CreationTimestamp.Time
	for _, at := range []time.Time{e.FirstTimestamp.Time, e.LastTimestamp.Time, e.EventTime.Time} {
		if at.After(last) {
			last = at
		}
	}
	if e.Series != nil && e.Series.LastObservedTime.After(last) {
		last = e.Series.LastObservedTime.Time
	}
	return last
}
