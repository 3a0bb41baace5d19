package claimwatch

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Spoiled says why a guest must not go on whose disk is on a claim, if it is another claim or volume
// than at the save, if another pod has used it since, or if that is not known; empty: it may. claim
// is nil if there is none of that name, and use if it was not watched.
func Spoiled(name string, claim *corev1.PersistentVolumeClaim, use *Use) string {
	block := claim != nil && claim.Spec.VolumeMode != nil && *claim.Spec.VolumeMode == corev1.PersistentVolumeBlock
	switch {
	case use == nil && !block:
		return "" // the disk is a file, and shows itself who wrote to it
	case use == nil:
		return "it is not known whether another pod has used claim " + name + " since the save, as vmlet-controller has no record of it"
	case claim == nil:
		return "claim " + name + " does not exist any more"
	case claim.UID != use.ClaimUID:
		return "claim " + name + " is another one than at the save"
	case claim.Spec.VolumeName != use.Volume:
		return fmt.Sprintf("claim %s has volume %s, and had %s at the save", name, claim.Spec.VolumeName, use.Volume)
	case claim.Status.Phase == corev1.ClaimLost:
		return fmt.Sprintf("claim %s has lost its volume %s", name, use.Volume)
	}
	return use.Spoiled()
}

// Spoiled is [Spoiled] as far as it follows from the watch alone.
func (u *Use) Spoiled() string {
	switch {
	case u.By != "":
		return fmt.Sprintf("pod %s has used claim %s since the save", u.By, u.Claim)
	case u.Gap != nil:
		return fmt.Sprintf("it is not known whether another pod has used claim %s since the save, as vmlet-controller could not watch pods from %s to %s",
			u.Claim, u.Gap.From.UTC().Format(time.RFC3339), u.Gap.Until.UTC().Format(time.RFC3339))
	}
	return ""
}
