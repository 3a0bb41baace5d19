package view

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/saves"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
)

// View is what was observed of an instance: all that the next action follows from.
type View struct {
	Now time.Time // in whole seconds, as statuses have it
	// Instance as the API server has it; nil: there is none.
	Instance *kubevirtv1.VirtualMachineInstance
	// Pod is the instance's own; nil: there is none, and none has vanished.
	Pod *Pod
	// Others are pods of instances that had the same name and are gone.
	Others []*Pod
	// Claims are those that the instance names and that are there.
	Claims map[string]*corev1.PersistentVolumeClaim
	// Filling is why some of them can't be used yet, by their names.
	Filling map[string]*condition.Fault
	// Users are those whose use of them excludes the instance's; read for an instance that has no pod.
	Users []ClaimUser
	// Fault is what kept the pod from being made in this round.
	Fault *condition.Fault
	// Call is the one by which the VM is saved, or suspends itself; nil: there is none, or it was
	// forgotten.
	Call *saves.Call
	// Attachments are the pods through which volumes are attached to the instance's.
	Attachments []*corev1.Pod
	// Refused is what kept such a pod from being made in this round, and AttachTrouble why it
	// does not start, by its events.
	Refused, AttachTrouble *condition.Fault
	// Images are those of the pod of a VM that was saved.
	Images []kubevirtv1.SavedContainerImage
	// Unsized is why the guest was refused another size in this round, by the condition that says so.
	Unsized map[string]*condition.Fault
}

// Effective is the specification by which the guest runs, as its agent says; nil: that is not known.
func (v *View) Effective() *specv1.VirtualMachineSpec {
	if v.Pod == nil || !v.Pod.Report.Current {
		return nil
	}
	return v.Pod.Report.VM.GetStatus().GetEffectiveSpec()
}

// Recorded is the phase in the instance's status.
func (v *View) Recorded() kubevirtv1.Phase { return v.Instance.Status.Phase }

// Final: the VM has ended, as the instance's status says for good.
func (v *View) Final() bool { return IsFinal(v.Recorded()) }

// Deleting: the instance is being deleted.
func (v *View) Deleting() bool { return v.Instance.DeletionTimestamp != nil }

// NeverHadPod: no pod was ever made, as far as the status says.
func (v *View) NeverHadPod() bool {
	return v.Recorded() == "" || v.Recorded() == kubevirtv1.PhasePending
}

// Machine is the one that a pod's VM was started on; nil: that is not known, or matters no more.
func (v *View) Machine(p *Pod) *kubevirtv1.NodeMachine {
	if p != v.Pod || v.Final() {
		return nil
	}
	return v.Instance.Status.NodeMachine
}

// StopStrategy is how the guest is to be ended; empty: it is to go on, or is being ended
// otherwise.
func (v *View) StopStrategy() string {
	if v.Instance == nil || v.Deleting() || v.Final() {
		return ""
	}
	return v.Instance.Spec.StopStrategy
}

// ClaimUser is another VM, or a pod, that uses claims of the instance's namespace.
type ClaimUser struct {
	// Instance, or nil where only its pod is left, and for a pod that fills a claim.
	Instance *kubevirtv1.VirtualMachineInstance
	// Pod whose guest may run, or that fills a claim; nil: there is none.
	Pod *corev1.Pod
	// Started: it has a pod, or its status knows of one.
	Started bool
	// Passed: it has no pod and waits for one that has, and the instance's VM was there before it asked for the claim.
	Passed bool
}
