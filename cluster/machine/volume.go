package machine

import (
	"slices"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/machine/hibernation"
	"github.com/vmlet/vmlet/cluster/machine/run"
	"github.com/vmlet/vmlet/contract"
)

// volume is one claim that a VM uses, and the DataVolume of that name, which fills it.
type volume struct {
	name string
	// template is nil unless the DataVolume is one of the VM's dataVolumeTemplates.
	template *kubevirtv1.DataVolumeTemplateSpec
	// dataVolume is nil if there is none, and vmlet does not fill the claim itself.
	dataVolume *dataVolume
	// bindNow: the claim is filled though no VM that has it is to start.
	bindNow bool
	claim   claimState
}

// claimState is what is known of a PersistentVolumeClaim.
type claimState int

const (
	missing claimState = iota
	unbound
	bound
)

// missing: the VM has to make the DataVolume. A claim without one counts as filled.
func (v volume) missing() bool {
	return v.template != nil && v.dataVolume == nil && v.claim == missing
}

// ready: a guest may use the claim. Where the import waits for its first consumer, the VM's
// pod is that.
func (v volume) ready() bool {
	if v.dataVolume != nil {
		return v.dataVolume.done()
	}
	return !v.missing()
}

// binding: the claim waits for a volume, and the import for the claim.
func (v volume) binding() bool {
	return v.claim == unbound && (v.dataVolume == nil || !v.dataVolume.begun())
}

// immediate: DataVolumes are made before the VM first starts.
func immediate(vm *kubevirtv1.VirtualMachine) bool {
	return vm.Annotations[contract.AnnotationImmediateDataVolumes] != "false"
}

// volumeNames returns the names of all claims that a VM uses or makes, sorted.
func volumeNames(vm *kubevirtv1.VirtualMachine) []string {
	names := run.ClaimNames(vm)
	for _, t := range vm.Spec.DataVolumeTemplates {
		names = append(names, t.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// usedClaims returns the names of all claims that a VM uses, makes, or has its memory on.
func usedClaims(vm *kubevirtv1.VirtualMachine) []string {
	names := append(volumeNames(vm), hibernation.NamedClaim(vm))
	if s := vm.Status.HibernationStatus; s != nil {
		names = append(names, s.ClaimName)
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
}
