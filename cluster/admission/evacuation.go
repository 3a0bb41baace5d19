package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/validation"
	"github.com/vmlet/vmlet/contract"
)

// shippedTimeout is how long an eviction is held at most where the cluster does not say.
const shippedTimeout = 500 * time.Second

// longestQueued is how long an eviction is held at most for a save whose turn has not come.
const longestQueued = 12 * time.Hour

// reasonQueued is that of the condition HibernationInProgress of a VM whose save waits for others.
const reasonQueued = kubevirtv1.ReasonQueued

// Reasons of the condition EvictionRequested and of the events.
const (
	reasonEvictionRequested  = "EvictionRequested"
	reasonEvictionLetThrough = kubevirtv1.ReasonEvictionLetThrough
	reasonEvictionUnsaved    = kubevirtv1.ReasonEvictionUnsaved
)

// noteTries is how often a note is written again because somebody changed the instance
// meanwhile.
const noteTries = 5

// maxProgress bounds what an eviction's answer quotes of the instance, in bytes.
const maxProgress = 512

// eviction is one of a pod that a save under way needs, or that a save is to come before.
type eviction struct {
	pod      *corev1.Pod
	instance *kubevirtv1.VirtualMachineInstance
	// evacuate: the VM goes on elsewhere.
	evacuate, dryRun bool
}

// hibernate holds the eviction of a VM that is saved before, and goes on elsewhere. One that can't be
// saved is evicted as if it had no strategy.
func (e *evictions) hibernate(ctx context.Context, pod *corev1.Pod, instance *kubevirtv1.VirtualMachineInstance, dryRun bool) admission.Response {
	v := eviction{pod: pod, instance: instance, evacuate: true, dryRun: dryRun}
	switch owner := metav1.GetControllerOf(instance); {
	case pod.Status.Phase == corev1.PodPending:
		return admission.Allowed("") // its guest has not started
	case owner == nil || owner.Kind != "VirtualMachine":
		return e.unsaved(ctx, v, "only a VirtualMachine's guest goes on elsewhere")
	case instance.Spec.StopStrategy != "": // it is being saved
	default:
		if why := e.unsaveable(ctx, instance); why != "" {
			return e.unsaved(ctx, v, why)
		}
	}
	return e.hold(ctx, v)
}

// unsaveable says why an instance can't be saved; empty: it can, or need not, or that can't be found
// out.
func (e *evictions) unsaveable(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance) string {
	vm := e.machine(ctx, vmi)
	c, err := e.config.Configuration(ctx)
	if vm == nil || err != nil {
		return ""
	}
	return validation.Unsaveable(vmi, c.Hibernation.ModeOf(vm.Spec.HibernateStrategy), c)
}

// unsaved allows the eviction of a VM that is not saved before, with an event: one for each
// instance, as others may deny the eviction again and again.
func (e *evictions) unsaved(ctx context.Context, v eviction, why string) admission.Response {
	text := fmt.Sprintf("VMI %s/%s is shut down, not hibernated: %s", v.instance.Namespace, v.instance.Name, why)
	return e.allow(ctx, v, reasonEvictionUnsaved, text, metav1.ObjectMeta{Name: "vmlet-eviction-" + string(v.instance.UID)})
}

// attachment decides on a pod that holds the claim to which a guest is being saved.
func (e *evictions) attachment(ctx context.Context, pod *corev1.Pod, dryRun bool) admission.Response {
	i := slices.IndexFunc(pod.OwnerReferences, func(r metav1.OwnerReference) bool {
		return r.Kind == "Pod" && string(r.UID) == pod.Labels[contract.LabelAttachedTo]
	})
	if i < 0 || ending(pod) {
		return admission.Allowed("")
	}
	launcher := &corev1.Pod{}
	if err := e.client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: pod.OwnerReferences[i].Name}, launcher); err != nil {
		return failOpen(err, "the pod that it serves")
	}
	if launcher.UID != pod.OwnerReferences[i].UID {
		return admission.Allowed("")
	}
	instance, allowed := e.instance(ctx, launcher)
	switch {
	case instance == nil:
		return allowed
	case instance.Spec.StopStrategy == "":
		return admission.Allowed("") // it is not needed any more
	}
	return e.hold(ctx, eviction{pod: pod, instance: instance, dryRun: dryRun})
}

// hold denies an eviction until the VM's time is over since the first one was asked for, or its save
// began: a drain is never blocked for ever. A status that can't be written ends no VM.
func (e *evictions) hold(ctx context.Context, v eviction) admission.Response {
	now, allowance := e.now(), e.allowance(ctx, v.instance)
	asked := now
	if c := requested(v.instance); c != nil && !c.LastTransitionTime.IsZero() {
		asked = c.LastTransitionTime.Time
	}
	begins := begins(v.instance, asked, now)
	if now.Sub(begins) >= allowance {
		return e.letThrough(ctx, v, allowance)
	}
	until := "at " + begins.Add(allowance).UTC().Format(time.RFC3339)
	if queued(v.instance) {
		until = fmt.Sprintf("%v after its save has begun", allowance)
	}
	denied := tooManyRequests(holding(v, until))
	if v.dryRun {
		return denied
	}
	if err := e.note(ctx, v.instance, v.evacuated()); err != nil {
		return denied.WithWarnings(fmt.Sprintf("vmlet: the eviction was not noted in the VirtualMachineInstance's status: %v", err))
	}
	return denied
}

// evacuated is the node that the instance is to leave; empty: none is noted.
func (v eviction) evacuated() string {
	if v.evacuate {
		return v.pod.Spec.NodeName
	}
	return ""
}

// begins is when the VM's time begins: others' saves on the node take none of it.
func begins(vmi *kubevirtv1.VirtualMachineInstance, asked, now time.Time) time.Time {
	begins := asked
	for _, s := range vmi.Status.VolumeStatus {
		if h := s.HibernationInfo; h != nil && h.StartTimestamp != nil && h.StartTimestamp.After(begins) {
			begins = h.StartTimestamp.Time
		}
	}
	if queued(vmi) {
		begins = now
	}
	if latest := asked.Add(longestQueued); begins.After(latest) {
		return latest
	}
	return begins
}

// queued: the VM's save waits for others on the node, and none was tried before.
func queued(vmi *kubevirtv1.VirtualMachineInstance) bool {
	began := func(s kubevirtv1.VolumeStatus) bool {
		return s.HibernationInfo != nil && s.HibernationInfo.StartTimestamp != nil
	}
	if slices.ContainsFunc(vmi.Status.VolumeStatus, began) {
		return false
	}
	return slices.ContainsFunc(vmi.Status.Conditions, func(c kubevirtv1.Condition) bool {
		return c.Type == kubevirtv1.ConditionHibernationInProgress && c.Status == metav1.ConditionTrue && c.Reason == reasonQueued
	})
}

// holding says why an eviction has to wait, and until when. Deschedulers know by the beginning
// whether somebody moves the VM.
func holding(v eviction, until string) string {
	vmi := v.instance.Namespace + "/" + v.instance.Name
	var text string
	switch {
	case v.pod.Labels[contract.LabelAttachedTo] != "":
		text = fmt.Sprintf("the pod has the claim to which VMI %s is being saved", vmi)
	case v.evacuate:
		text = fmt.Sprintf("Eviction triggered evacuation of VMI %s: its evictionStrategy is Hibernate: its memory is saved, and it goes on where there is room", vmi)
	default:
		text = fmt.Sprintf("VMI %s is being hibernated", vmi)
	}
	return fmt.Sprintf("%s%s; %s it is evicted all the same", text, progress(v.instance), until)
}

// progress is how far the save is, as the instance says.
func progress(vmi *kubevirtv1.VirtualMachineInstance) string {
	for _, c := range vmi.Status.Conditions {
		if c.Type == kubevirtv1.ConditionHibernationInProgress && c.Message != "" {
			return fmt.Sprintf(" (%s: %s)", c.Reason, strings.ToValidUTF8(c.Message[:min(len(c.Message), maxProgress)], ""))
		}
	}
	return ""
}

// letThrough allows an eviction that has waited long enough.
func (e *evictions) letThrough(ctx context.Context, v eviction, allowance time.Duration) admission.Response {
	text := fmt.Sprintf("VMI %s/%s was not saved within %v since its eviction was first asked for or its save began%s: pod %s is evicted, and the guest shuts down",
		v.instance.Namespace, v.instance.Name, allowance, progress(v.instance), v.pod.Name)
	return e.allow(ctx, v, reasonEvictionLetThrough, text, metav1.ObjectMeta{GenerateName: "vmlet-eviction-"})
}

// allow allows an eviction with a warning and an event of this name.
func (e *evictions) allow(ctx context.Context, v eviction, reason, text string, name metav1.ObjectMeta) admission.Response {
	allowed := admission.Allowed("").WithWarnings("vmlet: " + text)
	if v.dryRun {
		return allowed
	}
	name.Namespace = v.instance.Namespace
	event := &corev1.Event{
		ObjectMeta: name,
		InvolvedObject: corev1.ObjectReference{
			APIVersion: kubevirtv1.Group + "/" + kubevirtv1.Version, Kind: "VirtualMachineInstance",
			Namespace: v.instance.Namespace, Name: v.instance.Name, UID: v.instance.UID,
		},
		Type: corev1.EventTypeWarning, Reason: reason, Message: text, Count: 1,
		Source:         corev1.EventSource{Component: contract.CommonNameAPI},
		FirstTimestamp: metav1.NewTime(e.now()), LastTimestamp: metav1.NewTime(e.now()),
	}
	if err := e.client.Create(ctx, event); err != nil && !apierrors.IsAlreadyExists(err) {
		return allowed.WithWarnings("vmlet: " + text + fmt.Sprintf("; the event about it was not written: %v", err))
	}
	return allowed
}

// allowance is how long an eviction is held at most: as the cluster says, or the VM where that is
// shorter, as whose VM it is does not say for how long a node is not drained. One that can't be
// read says nothing.
func (e *evictions) allowance(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance) time.Duration {
	most := shippedTimeout
	if c, err := e.config.Configuration(ctx); err == nil && c.Hibernation.WarningTimeoutSeconds > 0 {
		most = time.Duration(c.Hibernation.WarningTimeoutSeconds) * time.Second
	}
	if vm := e.machine(ctx, vmi); vm != nil {
		if s := vm.Spec.HibernateStrategy; s != nil && s.WarningTimeoutSeconds != nil {
			return min(most, time.Duration(*s.WarningTimeoutSeconds)*time.Second)
		}
	}
	return most
}

// machine is the VirtualMachine whose guest an instance runs; nil: it has none, or that can't be read.
func (e *evictions) machine(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance) *kubevirtv1.VirtualMachine {
	owner := metav1.GetControllerOf(vmi)
	if owner == nil || owner.Kind != "VirtualMachine" {
		return nil
	}
	vm := &kubevirtv1.VirtualMachine{}
	if err := e.client.Get(ctx, client.ObjectKey{Namespace: vmi.Namespace, Name: owner.Name}, vm); err != nil || vm.UID != owner.UID {
		return nil
	}
	return vm
}

// requested is the condition that says since when the instance is to be evicted; nil: it is not.
func requested(vmi *kubevirtv1.VirtualMachineInstance) *kubevirtv1.Condition {
	for i := range vmi.Status.Conditions {
		if c := &vmi.Status.Conditions[i]; c.Type == kubevirtv1.ConditionEvictionRequested && c.Status == metav1.ConditionTrue {
			return c
		}
	}
	return nil
}

// note writes into the instance's status that it is to be evicted, since now if it was not
// before, and which node it is to leave: the controller waits for that. No condition that
// somebody else writes meanwhile is lost.
func (e *evictions) note(ctx context.Context, vmi *kubevirtv1.VirtualMachineInstance, node string) error {
	var err error
	for range noteTries {
		if requested(vmi) != nil && (node == "" || vmi.Status.EvacuationNodeName == node) {
			return nil
		}
		patch := client.MergeFromWithOptions(vmi.DeepCopy(), client.MergeFromWithOptimisticLock{})
		if node != "" {
			vmi.Status.EvacuationNodeName = node
		}
		if requested(vmi) == nil {
			vmi.Status.Conditions = append(slices.DeleteFunc(vmi.Status.Conditions, func(c kubevirtv1.Condition) bool {
				return c.Type == kubevirtv1.ConditionEvictionRequested
			}), kubevirtv1.Condition{
				Type: kubevirtv1.ConditionEvictionRequested, Status: metav1.ConditionTrue, Reason: reasonEvictionRequested,
				Message: "somebody has asked to evict the pod", LastTransitionTime: metav1.NewTime(e.now()).Rfc3339Copy(),
			})
		}
		if err = e.client.Status().Patch(ctx, vmi, patch); !apierrors.IsConflict(err) {
			return client.IgnoreNotFound(err)
		}
		uid := vmi.UID
		if err := e.client.Get(ctx, client.ObjectKeyFromObject(vmi), vmi); err != nil || vmi.UID != uid {
			return client.IgnoreNotFound(err)
		}
	}
	return err
}
