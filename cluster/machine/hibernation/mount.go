package hibernation

import (
	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/machine/action"
)

// mountsEarly: the VM's pods have the claim for its memory from their start, so that a save doesn't
// wait for it.
func mountsEarly(v View, instance *kubevirtv1.VirtualMachineInstance) bool {
	configured := v.VM.Spec.HibernateStrategy != nil || v.evictionStrategy(instance) == kubevirtv1.EvictionHibernate
	return configured && v.mode() == kubevirtv1.HibernateSave && v.unsaveable(instance) == ""
}

// Mount gives an instance that boots the claim for its memory, and returns what has to be made and
// what is needed no more. An image that the start discards stays until the guest runs. Without a
// claim that suits the guest starts all the same: the save says what is wrong.
func Mount(v View, instance *kubevirtv1.VirtualMachineInstance) (first []action.Action) {
	complete := instance.DeepCopy()
	v.Defaults(complete)
	if !mountsEarly(v, complete) {
		return nil
	}
	room, discarded := RoomFor(complete), discardedClaim(v)
	if name := NamedClaim(v.VM); name != "" {
		if v.unsuitable(name, room) == "" {
			instance.Spec.UtilityVolumes = []kubevirtv1.UtilityVolume{UtilityVolume(name)}
		}
		return nil
	}
	chosen := ""
	for _, name := range KeptClaims(v.VM) {
		if name != discarded && v.madeClaim(v.Claims[name]) && v.unsuitable(name, room) == "" {
			chosen = name
			break
		}
	}
	for _, name := range KeptClaims(v.VM) {
		switch {
		case chosen == "" && v.Claims[name] == nil && !v.Claimless:
			chosen = name
			first = append(first, action.CreateClaim{Claim: NewClaim(v, name, room)})
		case name != chosen && name != discarded:
			first = append(first, v.discard(name)...)
		}
	}
	if chosen != "" {
		instance.Spec.UtilityVolumes = []kubevirtv1.UtilityVolume{UtilityVolume(chosen)}
	}
	return first
}

// discardedClaim has an image that a boot discards; empty: there is none.
func discardedClaim(v View) string {
	if s := v.VM.Status.HibernationStatus; s != nil && s.Image != nil {
		return s.Image.ClaimName
	}
	return ""
}
