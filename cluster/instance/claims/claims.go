package claims

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/imports"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/contract"
)

// Names are the claims that an instance names, in the order of its volumes.
func Names(vmi *kubevirtv1.VirtualMachineInstance) []string {
	var names []string
	for i := range vmi.Spec.Volumes {
		if name := convert.ClaimName(&vmi.Spec.Volumes[i]); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, v := range convert.HibernationVolumes(vmi) {
		if v.ClaimName != "" && !slices.Contains(names, v.ClaimName) {
			names = append(names, v.ClaimName)
		}
	}
	return names
}

// ImportOf is the DataVolume that may be filling a claim; empty: none is. A claim that is filled
// says so.
func ImportOf(claim *corev1.PersistentVolumeClaim) string {
	owner := metav1.GetControllerOf(claim)
	if owner == nil || owner.Kind != DataVolumeKind || claim.Annotations[ImportPhase] == ImportSucceeded {
		return ""
	}
	return owner.Name
}

// Unfilled is why a claim can't be used yet, given the phase of its DataVolume; nil: it can. The
// VM's pod may come first where the claim gets its volume when that is filled; where the volume is
// filled after it was bound, the guest would find it empty.
func Unfilled(claim *corev1.PersistentVolumeClaim, phase string) *condition.Fault {
	populated := claim.Annotations[UsePopulator] == "true"
	switch {
	case phase == ImportSucceeded, phase == phasePopulation, phase == phaseConsumer && populated:
		return nil
	case phase == phaseConsumer:
		return &condition.Fault{Reason: condition.ReasonClaimFilling, Message: "claim " + claim.Name + " is filled once it has a volume, and waits for its first consumer: " +
			"make its DataVolume again with the annotation " + contract.AnnotationBindImmediately + `: "true"`}
	}
	return &condition.Fault{Reason: condition.ReasonClaimFilling, Message: "claim " + claim.Name + " is still being filled by its DataVolume: the VM starts when that is done"}
}

// Waits is why the pod can't be made yet; nil: it can.
func Waits(v *view.View) *condition.Fault {
	if v.Fault != nil {
		return v.Fault
	}
	for _, p := range v.Others {
		if !p.Ended() {
			return &condition.Fault{Reason: condition.ReasonFailedCreate, Message: "pod " + p.Name + " of an earlier instance of this name has not ended: " +
				"this one starts when it has; see kubectl describe pod " + p.Name}
		}
	}
	var missing []string
	for _, name := range Names(v.Instance) {
		claim := v.Claims[name]
		switch {
		case claim == nil:
			missing = append(missing, name)
		case claim.DeletionTimestamp != nil:
			return &condition.Fault{Reason: condition.ReasonClaimNotFound, Message: "PersistentVolumeClaim " + name + " is being deleted, which " +
				"ends with the last pod that has it: this VM starts when there is another of that name"}
		case v.Filling[name] != nil:
			return v.Filling[name]
		}
	}
	if missing != nil {
		return &condition.Fault{Reason: condition.ReasonClaimNotFound, Message: "there is no PersistentVolumeClaim " + strings.Join(missing, ", ") +
			" in namespace " + v.Instance.Namespace + ": create it, or correct the name in spec.volumes"}
	}
	return InUse(v.Instance, v.Users)
}

// Refilled: a claim is being filled, and the pod's VM would take its disk for a complete one: it was
// deleted and made again before the pod had a node.
func Refilled(v *view.View) bool {
	return slices.ContainsFunc(Names(v.Instance), func(name string) bool {
		claim := v.Claims[name]
		if claim == nil {
			return false
		}
		state := imports.Read(claim)
		return state != nil && !state.Done()
	})
}

// What the Containerized Data Importer notes on the claims that it fills.
const (
	ImportPhase     = "cdi.kubevirt.io/storage.pod.phase"
	ImportSucceeded = "Succeeded"
	UsePopulator    = "cdi.kubevirt.io/storage.usePopulator"
	// DataVolumeKind is that of what it fills claims by; its phases of a claim that waits for a
	// pod.
	DataVolumeVersion = "cdi.kubevirt.io/v1beta1"
	DataVolumeKind    = "DataVolume"
	phaseConsumer     = "WaitForFirstConsumer"
	phasePopulation   = "PendingPopulation"
)
