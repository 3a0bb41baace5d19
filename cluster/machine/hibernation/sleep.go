package hibernation

import (
	"slices"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/machine/action"
	"github.com/vmlet/vmlet/cluster/machine/run"
)

// complete records that the guest is saved, before its instance is released: the instance alone says
// it until then.
func complete(v View, d *Decision, image *kubevirtv1.SavedImage) {
	now := v.stamp()
	was := d.Status
	if was == nil {
		was = &kubevirtv1.HibernationStatus{} // it was cancelled as it was done
	}
	d.Status = &kubevirtv1.HibernationStatus{
		Mode: kubevirtv1.HibernateSuspendToDisk, Phase: kubevirtv1.HibernationCompleted,
		StartTimestamp: was.StartTimestamp, CompletionTimestamp: now, Evacuation: was.Evacuation,
	}
	d.Resume = nil
	if image == nil {
		d.First = append(d.First, v.dispose(was)...)
		d.record(action.Normal(reasonHibernated, "The guest has suspended itself to its own disk"))
		return
	}
	to := image.DeepCopy()
	if to.VirtualMachineRevisionName == "" {
		to.VirtualMachineRevisionName = run.RevisionName(v.VM.UID, run.Generation(v.Own))
	}
	s := d.Status
	s.Mode, s.ClaimName, s.FileName, s.Image = kubevirtv1.HibernateSave, to.ClaimName, to.Directory, to
	s.ClaimCreated = v.madeClaim(v.Claims[to.ClaimName]) && !slices.Contains(KeptClaims(v.VM), to.ClaimName)
	if was.ClaimName == to.ClaimName {
		s.ClaimCreated = was.ClaimCreated
	}
	d.record(action.Normal(reasonHibernated, "Saved the guest's memory to %s on claim %s (%d MiB)", to.Directory, to.ClaimName, sum(to.SizeBytes, mib-1)/mib))
}

// sleep is what becomes of a VM whose guest is saved, by the instance that it has: the one that was
// saved, which goes; one that goes on from the image; or one that has booted.
func sleep(v View, d *Decision) {
	own, s := v.Own, d.Status
	if v.Strategy == kubevirtv1.RunStrategyHibernate {
		s.Evacuation = false
	}
	image := savedImage(own)
	switch {
	case own == nil, image != nil && d.has(image), s.Image == nil && suspended(own):
	case s.Image == nil:
		if run.Ran(own) {
			d.Status, d.Resume = nil, nil
		}
	case restores(own, s.Image) && run.Ran(own):
		d.First = append(d.First, letGo(own, s.Image.ClaimName)...)
		d.First = append(d.First, v.dispose(s)...)
		d.Status, d.Resume = nil, &kubevirtv1.ResumeStatus{Phase: kubevirtv1.ResumeCompleted}
		d.record(action.Normal(reasonResumed, "The guest goes on on node %s from its memory saved at %s", own.Status.NodeName, stampOf(s.Image.Timestamp)))
	case restores(own, s.Image) && v.stage().Ended():
		failResume(v, d)
	case restores(own, s.Image) && v.stage() == run.Deleting: // why it goes stays
	case restores(own, s.Image) && v.Spoiled != nil:
		refuseInstance(v, d, v.Spoiled.Reason, v.Spoiled.Message)
	case restores(own, s.Image):
		d.Resume = resuming(d.Resume)
	default:
		d.First = append(d.First, discardImage(v, *d)...)
		d.Status, d.Resume = nil, nil
		d.record(action.Normal(reasonImageDiscarded, "The guest boots afresh: its memory saved to %s on claim %s is discarded", s.Image.Directory, s.Image.ClaimName))
	}
}

// letGo takes from an instance the volume that its guest has gone on from, if that was attached for the
// resume alone.
func letGo(own *kubevirtv1.VirtualMachineInstance, claim string) []action.Action {
	left := slices.DeleteFunc(slices.Clone(own.Spec.UtilityVolumes), func(v kubevirtv1.UtilityVolume) bool {
		return forMemory(v) && v.ClaimName == claim
	})
	if !own.Spec.RestoreFrom.Attached || len(left) == len(own.Spec.UtilityVolumes) {
		return nil
	}
	return []action.Action{direct(own, own.Spec.StopStrategy, left)}
}

// discardImage deletes the claim with an image that nobody wants any more, if the VM made it and
// the instance does not use it.
func discardImage(v View, d Decision) []action.Action {
	claim := d.Status.Image.ClaimName
	if slices.ContainsFunc(v.Own.Spec.UtilityVolumes, func(u kubevirtv1.UtilityVolume) bool { return u.ClaimName == claim }) {
		return nil
	}
	return v.discard(claim)
}

// resuming is the status of a resume that has an instance.
func resuming(was *kubevirtv1.ResumeStatus) *kubevirtv1.ResumeStatus {
	to := &kubevirtv1.ResumeStatus{Phase: kubevirtv1.ResumeInProgress}
	if was != nil {
		to.Failures, to.LastFailedVMIUID = was.Failures, was.LastFailedVMIUID
	}
	return to
}
