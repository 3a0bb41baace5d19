// Package action is what the controller of VirtualMachines can do: each write is a type of its own. Rules return
// actions, and the controller alone carries them out. The package knows no rule.
package action

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// Action is one write. Each is one of these types.
type Action any

type (
	// PatchMachine changes the VM's metadata or spec to these.
	PatchMachine struct{ To *kubevirtv1.VirtualMachine }
	// PatchInstance changes the instance's metadata to these.
	PatchInstance struct {
		To *kubevirtv1.VirtualMachineInstance
	}
	// DirectInstance tells the instance how its guest is to end, empty: it goes on, and what is
	// attached to its pod for that.
	DirectInstance struct {
		Instance *kubevirtv1.VirtualMachineInstance
		Stop     string
		Volumes  []kubevirtv1.UtilityVolume
	}
	// ResizeInstance has the instance's guest be given another size while it runs. Without Memory that stays.
	ResizeInstance struct {
		Instance *kubevirtv1.VirtualMachineInstance
		Sockets  int32
		Memory   *resource.Quantity
	}
	// MarkInstance has the instance say whether its VM stands by, and by its own UID whether its guest is to be paused
	// meanwhile.
	MarkInstance struct {
		Instance *kubevirtv1.VirtualMachineInstance
		Standby  string
		Paused   types.UID
	}
	// CreateClaim makes a claim for the guest's memory.
	CreateClaim struct{ Claim *corev1.PersistentVolumeClaim }
	// DeleteClaim deletes one that was made for the guest's memory.
	DeleteClaim struct{ Claim *corev1.PersistentVolumeClaim }
	// RecordEvent is of what happens without a change of the status.
	RecordEvent struct{ Event Event }
	// CreateDataVolume makes the DataVolume of a template.
	CreateDataVolume struct {
		Template *kubevirtv1.DataVolumeTemplateSpec
	}
	// ImportClaim makes the claim of a template, which vmlet fills.
	ImportClaim struct {
		Template *kubevirtv1.DataVolumeTemplateSpec
	}
	// BindClaim has a claim filled that waits for the VM's start.
	BindClaim struct{ Name string }
	// AdoptDataVolume makes the VM the owner of a DataVolume that has none.
	AdoptDataVolume struct{ Name string }
	// CreateRevision keeps a spec, or an instancetype or preference.
	CreateRevision struct{ Revision *appsv1.ControllerRevision }
	// CreateInstance starts the VM.
	CreateInstance struct {
		Instance *kubevirtv1.VirtualMachineInstance
	}
	// PruneRevisions deletes the VM's ControllerRevisions but for these.
	PruneRevisions struct{ Keep []string }
	// DeleteInstance stops the VM.
	DeleteInstance struct {
		Instance *kubevirtv1.VirtualMachineInstance
	}
	// WriteStatus writes the VM's status, then its events.
	WriteStatus struct {
		Status *kubevirtv1.VirtualMachineStatus
		Events []Event
	}
)

// Independent reports whether the actions after this one that are independent, too, are to be done though this
// one fails.
func Independent(a Action) bool {
	switch a.(type) {
	case CreateDataVolume, AdoptDataVolume, ImportClaim, BindClaim:
		return true
	}
	return false
}

// Is reports whether an action is of a type.
func Is[T Action](a Action) bool {
	_, is := a.(T)
	return is
}
