// Package action is what the controller of VirtualMachineInstances can do: each action is a type of its own. Rules
// return actions, and the controller alone carries them out. The package knows no rule.
package action

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/cluster/saves"
	"github.com/vmlet/vmlet/spec"
)

// Action is one of these types. It changes one object at most. Its text names it in errors.
type Action interface{ fmt.Stringer }

type (
	// Protect puts the instance's finalizer on it, which admission has done if it is there.
	Protect struct{}
	// CreatePod makes the instance's pod.
	CreatePod struct{}
	// ConfirmEnd asks the agent to promise that the pod's VM has ended.
	ConfirmEnd struct{ Pod *view.Pod }
	// WriteStatus writes the instance's status, then its events.
	WriteStatus struct {
		Status *kubevirtv1.VirtualMachineInstanceStatus
		Events []Event
	}
	// DeletePod deletes a pod with its own grace period, DestroyPod with none.
	DeletePod  struct{ Pod *view.Pod }
	DestroyPod struct{ Pod *view.Pod }
	// KillGuest ends the guest of a pod that is being deleted, through the agent; HurryGuest gives it less
	// time than it was given.
	KillGuest  struct{ Pod *view.Pod }
	HurryGuest struct{ Pod *view.Pod }
	// ReleasePod takes vmlet's finalizer from a pod, Finalize from the instance.
	ReleasePod struct{ Pod *view.Pod }
	Finalize   struct{}
	// PauseGuest and ResumeGuest have the agent do so with the guest of a VM that stands by; Serve opens the readiness
	// gate of its pod.
	PauseGuest  struct{ Pod *view.Pod }
	ResumeGuest struct{ Pod *view.Pod }
	Serve       struct{ Pod *view.Pod }
	// LabelInstance says on the instance where it runs; RelabelPod gives the pod the instance's labels.
	LabelInstance struct{}
	RelabelPod    struct{ Pod *view.Pod }
	// Attach makes the pod through which a claim is attached to the instance's pod, Detach
	// deletes it.
	Attach struct{ Claim string }
	Detach struct{ Attachment *corev1.Pod }
	// Save has the agent save the VM, or the guest suspend itself; CancelSave ends that call.
	Save       struct{ Request saves.Request }
	CancelSave struct{}
	// Resize gives the guest more or fewer vCPUs, or memory, while it runs.
	Resize struct {
		Pod    *view.Pod
		Sizing Sizing
	}
)

func (Protect) String() string { return "protect" }

func (CreatePod) String() string { return "create" }

func (ConfirmEnd) String() string { return "confirm" }

func (WriteStatus) String() string { return "write" }

func (DeletePod) String() string { return "delete" }

func (DestroyPod) String() string { return "destroy" }

func (KillGuest) String() string { return "kill" }

func (HurryGuest) String() string { return "hurry" }

func (PauseGuest) String() string { return "pause" }

func (ResumeGuest) String() string { return "resume" }

func (Serve) String() string { return "serve" }

func (ReleasePod) String() string { return "release" }

func (Finalize) String() string { return "finalize" }

func (LabelInstance) String() string { return "label" }

func (RelabelPod) String() string { return "relabel" }

func (Attach) String() string { return "attach" }

func (Detach) String() string { return "detach" }

func (Save) String() string { return "save" }

func (CancelSave) String() string { return "cancel" }

func (Resize) String() string { return "resize" }

// Event is one that is recorded of the instance.
type Event struct{ Kind, Reason, Message string }

// Sizing is a change of a guest's size: of its vCPUs or, in bytes, of its memory.
type Sizing struct {
	// Condition is the type of the condition that reports it.
	Condition string
	VCPUs     uint32
	Memory    uint64
}

func (z Sizing) String() string {
	if z.VCPUs != 0 {
		return fmt.Sprintf("%d vCPUs", z.VCPUs)
	}
	return spec.FormatQuantity(z.Memory) + " of memory"
}

// Is reports whether an action is of a type.
func Is[T Action](a Action) bool {
	_, is := a.(T)
	return is
}
