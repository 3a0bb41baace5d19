package hibernation

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/machine/action"
	"github.com/vmlet/vmlet/cluster/machine/run"
)

// nothingToSave tells once that a VM that is to hibernate does not run.
func nothingToSave(v View, d *Decision) {
	c := kubevirtv1.FindCondition(v.VM.Status.Conditions, kubevirtv1.ConditionHibernated)
	if notRunning(v, *d) && (c == nil || c.Reason != reasonNotRunning) {
		d.record(action.Normal(reasonNotRunning, "the VM does not run: there is nothing to save, and it stays stopped"))
	}
}

// notRunning: the VM is to hibernate and has no guest.
func notRunning(v View, d Decision) bool {
	return d.Status == nil && v.Strategy == kubevirtv1.RunStrategyHibernate && (v.stage() == run.Absent || v.stage().Ended())
}

func beginSave(v View, d *Decision) {
	own := v.Own
	if !run.Steady(own) {
		nothingToSave(v, d)
		return
	}
	d.Resume = nil
	d.Status = &kubevirtv1.HibernationStatus{
		Mode: v.mode(), Phase: kubevirtv1.HibernationInitial, FirstStartTimestamp: v.stamp(), StartTimestamp: v.stamp(),
		Evacuation: v.Strategy != kubevirtv1.RunStrategyHibernate,
	}
	if why := v.unsaveable(own); why != "" {
		d.Status.ClaimName = NamedClaim(v.VM)
		failSave(v, d, reasonCannotSave, why)
		return
	}
	why := "its run strategy is Hibernate"
	if d.Status.Evacuation {
		why = "it is to leave node " + own.Status.EvacuationNodeName
	}
	d.record(action.Normal(reasonHibernationStarted, "The VM hibernates (%s), as %s", d.Status.Mode, why))
	if d.Status.Mode == kubevirtv1.HibernateSave {
		chooseClaim(v, d)
	}
}

// chooseClaim chooses the claim: that which the user names, else the one that the pod mounts, else one
// for this hibernation alone. It is in the status before it is made.
func chooseClaim(v View, d *Decision) {
	own, s, kept := v.Own, d.Status, KeptClaims(v.VM)
	s.ClaimName, s.ClaimCreated = NamedClaim(v.VM), false
	if s.ClaimName != "" {
		return
	}
	for _, u := range own.Spec.UtilityVolumes {
		if forMemory(u) && slices.Contains(kept, u.ClaimName) && v.unsuitable(u.ClaimName, RoomFor(own)) == "" {
			s.ClaimName = u.ClaimName
			return
		}
	}
	s.ClaimName, s.ClaimCreated, s.Phase = OnceClaim(v.VM, *v.stamp()), true, kubevirtv1.HibernationPVCCreate
}

// save takes a hibernation further that has begun.
func save(v View, d *Decision) {
	own, s := v.Own, d.Status
	unsaveable := own != nil && v.unsaveable(own) != ""
	switch {
	case own == nil || run.Ended(own):
		d.record(action.Warning(reasonHibernationFailed, "%s: %s", reasonGuestEnded, endedUnsaved(v)))
		d.First = append(d.First, v.dispose(s)...)
		if slices.Contains(KeptClaims(v.VM), s.ClaimName) {
			d.First = append(d.First, v.discard(s.ClaimName)...) // it may have an image that nobody knows of
		}
		d.Status = nil
	case v.stage() == run.Deleting:
	case !v.saves(), outdated(v, *d), unsaveable && (own.Spec.StopStrategy != "" || s.ClaimCreated), unsaveable != (s.Reason == reasonCannotSave):
		cancel(v, d)
	case unsaveable: // nothing is begun before the VM changes
	case own.Spec.StopStrategy != s.Mode:
		s.Evacuation = v.Strategy != kubevirtv1.RunStrategyHibernate
		ask(v, d)
	default:
		s.Evacuation = v.Strategy != kubevirtv1.RunStrategyHibernate
		readProgress(v, d)
	}
}

// endedUnsaved says why a guest ended before it was saved, as its instance reports it, and what follows.
func endedUnsaved(v View) string {
	own := v.Own
	words := "the guest ended before it was saved"
	if own != nil {
		if c := kubevirtv1.FindCondition(own.Status.Conditions, kubevirtv1.ConditionHibernationInProgress); c != nil && c.Reason == reasonGuestEnded && c.Message != "" {
			words = action.Clip(c.Message, action.Longest)
		}
	}
	if v.Strategy == kubevirtv1.RunStrategyHibernate {
		return words + "; nothing is saved, and the VM stays stopped"
	}
	return words + "; it starts as its run strategy says"
}

// outdated: the user wants the guest saved otherwise than was begun.
func outdated(v View, d Decision) bool {
	s := d.Status
	if s.Mode != v.mode() {
		return true
	}
	name := NamedClaim(v.VM)
	return s.Mode == kubevirtv1.HibernateSave && s.Phase == kubevirtv1.HibernationFailed && s.ClaimName != name &&
		(name != "" || !v.madeClaim(v.Claims[s.ClaimName]) && !s.ClaimCreated)
}

// cancel has the guest go on. What was begun is forgotten, and a claim made for it deleted, once
// the instance says that nothing is under way: until then the guest may have been saved after all.
func cancel(v View, d *Decision) {
	own, s := v.Own, d.Status
	if own.Spec.StopStrategy != "" {
		left := slices.Clone(own.Spec.UtilityVolumes)
		if s.ClaimCreated {
			left = slices.DeleteFunc(left, func(v kubevirtv1.UtilityVolume) bool { return forMemory(v) && v.ClaimName == s.ClaimName })
		}
		d.Then = append(d.Then, direct(own, "", left))
		return
	}
	c := kubevirtv1.FindCondition(own.Status.Conditions, kubevirtv1.ConditionHibernationInProgress)
	attached := slices.ContainsFunc(own.Status.VolumeStatus, func(v kubevirtv1.VolumeStatus) bool {
		return v.Name == VolumeName(s.ClaimName) && v.HotplugVolume != nil
	})
	if c != nil && c.Status == metav1.ConditionTrue || attached {
		return
	}
	d.First = append(d.First, v.dispose(s)...)
	d.Status = nil
	if v.saves() {
		return // another hibernation begins at once
	}
	d.record(action.Normal(reasonHibernationCancelled, "The hibernation was cancelled, and the guest goes on"))
}

// ask makes or checks the claim, and has the instance saved to it.
func ask(v View, d *Decision) {
	own := v.Own
	room := RoomFor(own)
	s := d.Status
	if s.Mode == kubevirtv1.HibernateSave {
		switch why := v.unsuitable(s.ClaimName, room); {
		case v.Claims[s.ClaimName] == nil && s.ClaimCreated:
			d.Then = append(d.Then, action.CreateClaim{Claim: NewClaim(v, s.ClaimName, room)})
			return
		case why != "" && s.ClaimCreated && s.Phase != kubevirtv1.HibernationFailed:
			failSave(v, d, reasonClaimUnsuitable, why)
			retry := metav1.NewTime(v.Now.Add(saveRetry(s.Failures))).Rfc3339Copy()
			s.RetryTimestamp = &retry
		case why != "" && s.ClaimCreated && s.RetryTimestamp != nil && !run.Awaited(s.RetryTimestamp, v.Now):
			d.First = append(d.First, v.dispose(s)...)
			attempt(v, d)
			chooseClaim(v, d)
		case why != "" && s.ClaimName != NamedClaim(v.VM) && !s.ClaimCreated:
			chooseClaim(v, d) // the claim that the pod mounts is too small by now, or gone
		case why != "":
			failSave(v, d, reasonClaimUnsuitable, why)
		}
		if v.unsuitable(s.ClaimName, room) != "" {
			if s.RetryTimestamp != nil {
				d.Again = s.RetryTimestamp.Time
			}
			return
		}
	}
	if !run.Steady(own) {
		return
	}
	attempt(v, d)
	s.Phase = kubevirtv1.HibernationReadyToHotPlug
	d.Then = append(d.Then, direct(own, s.Mode, saveVolumes(v, *d)))
}

// saveVolumes are an instance's utility volumes with the one that it is saved to as the last of them,
// by which the instance knows it. Those of earlier hibernations whose claims went with them go.
func saveVolumes(v View, d Decision) []kubevirtv1.UtilityVolume {
	own, s := v.Own, d.Status
	if s.Mode != kubevirtv1.HibernateSave {
		return own.Spec.UtilityVolumes
	}
	var all []kubevirtv1.UtilityVolume
	to := UtilityVolume(s.ClaimName)
	for _, u := range own.Spec.UtilityVolumes {
		switch {
		case forMemory(u) && u.ClaimName == s.ClaimName:
			to = u
		case !forMemory(u), own.Spec.RestoreFrom != nil && u.ClaimName == own.Spec.RestoreFrom.ClaimName,
			slices.Contains(KeptClaims(v.VM), u.ClaimName), u.ClaimName == NamedClaim(v.VM):
			all = append(all, u)
		}
	}
	return append(all, to)
}

// attempt begins a new attempt after a failure.
func attempt(v View, d *Decision) {
	s := d.Status
	if s.Phase == kubevirtv1.HibernationFailed {
		s.Phase = kubevirtv1.HibernationInitial
		s.StartTimestamp, s.CompletionTimestamp, s.RetryTimestamp, s.Reason, s.Message = v.stamp(), nil, nil, "", ""
	}
}

// readProgress reads from the instance how far the save is.
func readProgress(v View, d *Decision) {
	own, s := v.Own, d.Status
	attached := false
	for _, volume := range own.Status.VolumeStatus {
		if s.ClaimName == "" || volume.PersistentVolumeClaimInfo == nil || volume.PersistentVolumeClaimInfo.ClaimName != s.ClaimName {
			continue
		}
		attached = volume.Phase == kubevirtv1.VolumeInPod || volume.Phase == kubevirtv1.VolumeReady
		if volume.HibernationInfo != nil {
			s.FileName = action.Clip(volume.HibernationInfo.TargetFileName, 255)
		}
	}
	c := kubevirtv1.FindCondition(own.Status.Conditions, kubevirtv1.ConditionHibernationInProgress)
	if c != nil && c.Status == metav1.ConditionFalse {
		failSave(v, d, c.Reason, c.Message)
		return
	}
	if s.Phase == kubevirtv1.HibernationFailed && c == nil {
		return
	}
	attempt(v, d)
	switch {
	case c != nil && (c.Reason == reasonSaving || c.Reason == reasonSuspending):
		s.Phase = kubevirtv1.HibernationInProgress
	case attached || c != nil && c.Reason == reasonQueued:
		s.Phase = kubevirtv1.HibernationHotPlugFinished
	default:
		s.Phase = kubevirtv1.HibernationReadyToHotPlug
	}
}

// failSave records why the guest could not be saved. It goes on.
func failSave(v View, d *Decision, reason, message string) {
	s := d.Status
	message = action.Clip(message, action.Longest)
	if s.Phase != kubevirtv1.HibernationFailed || s.Reason != reason {
		s.Failures, s.CompletionTimestamp = min(max(s.Failures, 0), 1000)+1, v.stamp()
		d.record(action.Warning(reasonHibernationFailed, "%s: %s", reason, message))
	}
	s.Phase, s.Reason, s.Message = kubevirtv1.HibernationFailed, action.Clip(reason, 64), message
}

// warn tells once of a hibernation that takes too long, with all its attempts. It goes on.
func warn(v View, d *Decision) {
	s, limit := d.Status, v.warningTimeout()
	if s == nil || s.FirstStartTimestamp == nil || limit <= 0 {
		return
	}
	if at := s.FirstStartTimestamp.Add(limit); v.Now.Before(at) {
		if d.Again.IsZero() || at.Before(d.Again) {
			d.Again = at
		}
		return
	}
	message := fmt.Sprintf("the guest is not saved after %v, the warningTimeoutSeconds of hibernateStrategy: it is still tried", limit)
	if s.Phase == kubevirtv1.HibernationFailed {
		message = fmt.Sprintf("%s, after %d failures, the last one: %s", message, s.Failures, s.Message)
	} else {
		s.Reason, s.Message = reasonHibernationTimeout, message
	}
	if !s.TimedOut {
		s.TimedOut = true
		d.record(action.Warning(reasonHibernationTimeout, "%s", message))
	}
}
