package hibernation

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/machine/action"
	"github.com/vmlet/vmlet/cluster/machine/run"
)

// savedImage is what an instance was saved to; nil: it was not.
func savedImage(own *kubevirtv1.VirtualMachineInstance) *kubevirtv1.SavedImage {
	if own == nil || own.Status.Phase != kubevirtv1.PhaseSucceeded || own.Status.SavedImage == nil || own.Status.SavedImage.ID == "" {
		return nil
	}
	return own.Status.SavedImage
}

// suspended: the instance ended as its guest suspended itself to its disk.
func suspended(own *kubevirtv1.VirtualMachineInstance) bool {
	return own != nil && own.Status.Phase == kubevirtv1.PhaseSucceeded && own.Status.SavedImage == nil && own.Status.Reason == reasonSuspended
}

// Ended reports whether the instance's guest was saved, or suspended itself to its disk.
func Ended(own *kubevirtv1.VirtualMachineInstance) bool {
	return savedImage(own) != nil || suspended(own)
}

// restores: an instance goes on from an image, if from that one.
func restores(own *kubevirtv1.VirtualMachineInstance, image *kubevirtv1.SavedImage) bool {
	return own != nil && own.Spec.RestoreFrom != nil && (image == nil || own.Spec.RestoreFrom.ID == image.ID)
}

// Unrecorded reports whether an instance says something about the hibernation that its VM's status does not have
// yet. The instance must not go before.
func Unrecorded(vm *kubevirtv1.VirtualMachine, own *kubevirtv1.VirtualMachineInstance) bool {
	s := vm.Status.HibernationStatus
	if image := savedImage(own); image != nil {
		return s == nil || s.Image == nil || s.Image.ID != image.ID
	}
	return s != nil && s.Image != nil && restores(own, s.Image) && run.Ran(own)
}

func stampOf(t *metav1.Time) string {
	if t == nil {
		return "an unknown time"
	}
	return t.UTC().Format("2006-01-02T15:04:05Z")
}

// Forget returns what is to be done about the image of a VM that is deleted: an event says where it stays, if its
// claim is not the VM's.
func Forget(vm *kubevirtv1.VirtualMachine) []action.Action {
	s := vm.Status.HibernationStatus
	if s == nil || s.Image == nil || s.ClaimCreated || slices.Contains(KeptClaims(vm), s.Image.ClaimName) {
		return nil
	}
	return []action.Action{action.RecordEvent{Event: action.Normal(reasonImageKept,
		"The guest's memory stays in %s on claim %s, which is not the VM's: delete it there", s.Image.Directory, s.Image.ClaimName)}}
}
