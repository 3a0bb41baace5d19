package machine

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/machine/action"
	"github.com/vmlet/vmlet/cluster/machine/run"
	"github.com/vmlet/vmlet/cluster/validation"
)

// Reasons of events and conditions about hibernations.
const (
	reasonHibernationStarted   = "HibernationStarted"
	reasonHibernated           = "Hibernated"
	reasonHibernationFailed    = "HibernationFailed"
	reasonHibernationTimeout   = "HibernationTimeout"
	reasonHibernationCancelled = "HibernationCancelled"
	reasonNotRunning           = "NotRunning"
	reasonClaimUnsuitable      = "ClaimUnsuitable"
	reasonCannotSave           = "GuestCannotBeSaved"
	reasonSaved                = "Saved"
	// Reasons of an instance: that of one whose guest has suspended itself, and of its condition
	// while it is saved.
	reasonSuspended  = "SuspendedToDisk"
	reasonSaving     = "Saving"
	reasonSuspending = "Suspending"
	reasonQueued     = "Queued"
	reasonGuestEnded = "GuestEnded"
)

// hibernation is what becomes of a VM's hibernation and of its resume.
type hibernation struct {
	// status and resume are the VM's, as they are to be.
	status *kubevirtv1.HibernationStatus
	resume *kubevirtv1.ResumeStatus
	// first is done before the VM's status says so, then afterwards.
	first, then []action.Action
	events      []action.Event
	// again is when to look again for the hibernation's sake; zero: never.
	again time.Time
}

func (h *hibernation) tell(kind, reason, format string, args ...any) {
	h.events = append(h.events, action.Event{Kind: kind, Reason: reason, Note: fmt.Sprintf(format, args...)})
}

// asleep: the guest is saved, or has suspended itself.
func (h *hibernation) asleep() bool {
	return h.status != nil && h.status.Phase == kubevirtv1.HibernationCompleted
}

// mode is how the VM hibernates.
func mode(o observed) string { return o.cluster.Hibernation.ModeOf(o.vm.Spec.HibernateStrategy) }

// unsaveable says why an instance's guest can't hibernate, and what to do; empty: it can, as far as
// is known, or need not.
func (o observed) unsaveable(instance *kubevirtv1.VirtualMachineInstance) string {
	return validation.Unsaveable(instance, mode(o), o.cluster)
}

// warningTimeout is after how long a hibernation is told of that has not ended; 0: never.
func warningTimeout(o observed) time.Duration {
	seconds := o.cluster.Hibernation.WarningTimeoutSeconds
	if s := o.vm.Spec.HibernateStrategy; s != nil && s.WarningTimeoutSeconds != nil {
		seconds = *s.WarningTimeoutSeconds
	}
	return time.Duration(seconds) * time.Second
}

func evictionStrategy(o observed, instance *kubevirtv1.VirtualMachineInstance) kubevirtv1.EvictionStrategy {
	if s := instance.Spec.EvictionStrategy; s != nil {
		return *s
	}
	return o.cluster.EvictionStrategy
}

// evacuates: the instance is to leave its node, by being saved. One that can't be saved is evicted
// as if it had no strategy.
func (r *ruling) evacuates(own *kubevirtv1.VirtualMachineInstance) bool {
	switch r.strategy {
	case kubevirtv1.RunStrategyAlways, kubevirtv1.RunStrategyRerunOnFailure, kubevirtv1.RunStrategyManual, kubevirtv1.RunStrategyOnce:
		return own.Status.EvacuationNodeName != "" && evictionStrategy(r.observed, own) == kubevirtv1.EvictionHibernate && r.unsaveable(own) == ""
	}
	return false
}

// saves: the guest is to be saved, as soon as that can be.
func (r *ruling) saves(own *kubevirtv1.VirtualMachineInstance) bool {
	return r.strategy == kubevirtv1.RunStrategyHibernate ||
		r.evacuates(own) && first(r.requests) != kubevirtv1.StateChangeStop
}

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

// hibernate says what becomes of the hibernation by what the instance has come to.
func (r *ruling) hibernate() {
	h, own := &r.hibernation, r.own()
	h.status, h.resume = r.vm.Status.HibernationStatus.DeepCopy(), r.vm.Status.ResumeStatus.DeepCopy()
	if !r.vm.DeletionTimestamp.IsZero() {
		return
	}
	image := savedImage(own)
	switch s := h.status; {
	case image != nil && !h.records(image):
		r.complete(image)
	case suspended(own) && !h.asleep():
		r.complete(nil)
	case s == nil && own != nil && r.saves(own):
		r.beginSave(own)
	case s == nil && own != nil && r.state == run.Alive && own.Spec.StopStrategy != "":
		h.then = append(h.then, direct(own, "", own.Spec.UtilityVolumes))
	case s == nil:
		r.nothingToSave()
	case h.asleep():
		r.sleep(own)
	default:
		r.save(own)
	}
	if h.status == nil && h.resume != nil && h.resume.Phase == kubevirtv1.ResumeCompleted && r.vm.Status.HibernationStatus == nil {
		h.resume.Phase = kubevirtv1.ResumeCleaned
	}
	r.warn()
}

func (h *hibernation) records(image *kubevirtv1.SavedImage) bool {
	return h.status != nil && h.status.Image != nil && h.status.Image.ID == image.ID
}

// nothingToSave tells once that a VM that is to hibernate does not run.
func (r *ruling) nothingToSave() {
	c := find(r.vm.Status.Conditions, kubevirtv1.ConditionHibernated)
	if r.notRunning() && (c == nil || c.Reason != reasonNotRunning) {
		r.hibernation.tell(corev1.EventTypeNormal, reasonNotRunning, "the VM does not run: there is nothing to save, and it stays stopped")
	}
}

// notRunning: the VM is to hibernate and has no guest.
func (r *ruling) notRunning() bool {
	return r.hibernation.status == nil && r.strategy == kubevirtv1.RunStrategyHibernate && r.creating == nil && (r.state == run.Absent || r.state.Ended())
}

// complete records that the guest is saved, before its instance is let go: the instance alone says
// it until then.
func (r *ruling) complete(image *kubevirtv1.SavedImage) {
	h, now := &r.hibernation, r.stamp()
	was := h.status
	if was == nil {
		was = &kubevirtv1.HibernationStatus{} // it was cancelled as it was done
	}
	h.status = &kubevirtv1.HibernationStatus{
		Mode: kubevirtv1.HibernateSuspendToDisk, Phase: kubevirtv1.HibernationCompleted,
		StartTimestamp: was.StartTimestamp, CompletionTimestamp: now, Evacuation: was.Evacuation,
	}
	h.resume = nil
	if image == nil {
		h.first = append(h.first, r.dispose(was)...)
		h.tell(corev1.EventTypeNormal, reasonHibernated, "The guest has suspended itself to its own disk")
		return
	}
	to := image.DeepCopy()
	if to.VirtualMachineRevisionName == "" {
		to.VirtualMachineRevisionName = run.RevisionName(r.vm.UID, run.Generation(r.own()))
	}
	s := h.status
	s.Mode, s.ClaimName, s.FileName, s.Image = kubevirtv1.HibernateSave, to.ClaimName, to.Directory, to
	s.ClaimCreated = r.madeClaim(r.claims[to.ClaimName]) && !slices.Contains(keptClaims(r.vm), to.ClaimName)
	if was.ClaimName == to.ClaimName {
		s.ClaimCreated = was.ClaimCreated
	}
	h.tell(corev1.EventTypeNormal, reasonHibernated, "Saved the guest's memory to %s on claim %s (%d MiB)", to.Directory, to.ClaimName, sum(to.SizeBytes, mib-1)/mib)
}

// dispose deletes the claim that was made for a hibernation alone.
func (o observed) dispose(s *kubevirtv1.HibernationStatus) []action.Action {
	if !s.ClaimCreated || s.ClaimName == "" {
		return nil
	}
	return o.discard(s.ClaimName)
}

// stamp is now, as objects keep it.
func (o observed) stamp() *metav1.Time {
	now := metav1.NewTime(o.now).Rfc3339Copy()
	return &now
}

func (r *ruling) beginSave(own *kubevirtv1.VirtualMachineInstance) {
	if !run.Steady(own) {
		r.nothingToSave()
		return
	}
	h := &r.hibernation
	h.resume = nil
	h.status = &kubevirtv1.HibernationStatus{
		Mode: mode(r.observed), Phase: kubevirtv1.HibernationInitial, FirstStartTimestamp: r.stamp(), StartTimestamp: r.stamp(),
		Evacuation: r.strategy != kubevirtv1.RunStrategyHibernate,
	}
	if why := r.unsaveable(own); why != "" {
		h.status.ClaimName = namedClaim(r.vm)
		r.failSave(reasonCannotSave, why)
		return
	}
	why := "its run strategy is Hibernate"
	if h.status.Evacuation {
		why = "it is to leave node " + own.Status.EvacuationNodeName
	}
	h.tell(corev1.EventTypeNormal, reasonHibernationStarted, "The VM hibernates (%s), as %s", h.status.Mode, why)
	if h.status.Mode == kubevirtv1.HibernateSave {
		r.choose(own)
	}
}

// choose chooses the claim: that which the user names, else the one that the pod mounts, else one
// for this hibernation alone. It is in the status before it is made.
func (r *ruling) choose(own *kubevirtv1.VirtualMachineInstance) {
	s, kept := r.hibernation.status, keptClaims(r.vm)
	s.ClaimName, s.ClaimCreated = namedClaim(r.vm), false
	if s.ClaimName != "" {
		return
	}
	for _, v := range own.Spec.UtilityVolumes {
		if forMemory(v) && slices.Contains(kept, v.ClaimName) && r.unsuitable(v.ClaimName, roomFor(own)) == "" {
			s.ClaimName = v.ClaimName
			return
		}
	}
	s.ClaimName, s.ClaimCreated, s.Phase = onceClaim(r.vm, *r.stamp()), true, kubevirtv1.HibernationPVCCreate
}

func forMemory(v kubevirtv1.UtilityVolume) bool {
	return v.Type != nil && *v.Type == kubevirtv1.UtilityHibernation
}

// save takes a hibernation further that has begun.
func (r *ruling) save(own *kubevirtv1.VirtualMachineInstance) {
	h := &r.hibernation
	s := h.status
	unsaveable := own != nil && r.unsaveable(own) != ""
	switch {
	case own == nil || run.Ended(own):
		h.tell(corev1.EventTypeWarning, reasonHibernationFailed, "%s: %s", reasonGuestEnded, r.endedUnsaved(own))
		h.first = append(h.first, r.dispose(s)...)
		if slices.Contains(keptClaims(r.vm), s.ClaimName) {
			h.first = append(h.first, r.discard(s.ClaimName)...) // it may have an image that nobody knows of
		}
		h.status = nil
	case r.state == run.Deleting:
	case !r.saves(own), r.outdated(), unsaveable && (own.Spec.StopStrategy != "" || s.ClaimCreated), unsaveable != (s.Reason == reasonCannotSave):
		r.cancel(own)
	case unsaveable: // nothing is begun before the VM changes
	case own.Spec.StopStrategy != s.Mode:
		s.Evacuation = r.strategy != kubevirtv1.RunStrategyHibernate
		r.ask(own)
	default:
		s.Evacuation = r.strategy != kubevirtv1.RunStrategyHibernate
		r.follow(own)
	}
}

// endedUnsaved says why a guest ended before it was saved, by its instance's word, and what follows.
func (r *ruling) endedUnsaved(own *kubevirtv1.VirtualMachineInstance) string {
	words := "the guest ended before it was saved"
	if own != nil {
		if c := find(own.Status.Conditions, kubevirtv1.ConditionHibernationInProgress); c != nil && c.Reason == reasonGuestEnded && c.Message != "" {
			words = action.Clip(c.Message, action.Longest)
		}
	}
	if r.strategy == kubevirtv1.RunStrategyHibernate {
		return words + "; nothing is saved, and the VM stays stopped"
	}
	return words + "; it starts as its run strategy says"
}

// outdated: the user wants the guest saved otherwise than was begun.
func (r *ruling) outdated() bool {
	s := r.hibernation.status
	if s.Mode != mode(r.observed) {
		return true
	}
	name := namedClaim(r.vm)
	return s.Mode == kubevirtv1.HibernateSave && s.Phase == kubevirtv1.HibernationFailed && s.ClaimName != name &&
		(name != "" || !r.madeClaim(r.claims[s.ClaimName]) && !s.ClaimCreated)
}

// cancel has the guest go on. What was begun is forgotten, and a claim made for it deleted, once
// the instance says that nothing is under way: until then the guest may have been saved after all.
func (r *ruling) cancel(own *kubevirtv1.VirtualMachineInstance) {
	h := &r.hibernation
	s := h.status
	if own.Spec.StopStrategy != "" {
		left := slices.Clone(own.Spec.UtilityVolumes)
		if s.ClaimCreated {
			left = slices.DeleteFunc(left, func(v kubevirtv1.UtilityVolume) bool { return forMemory(v) && v.ClaimName == s.ClaimName })
		}
		h.then = append(h.then, direct(own, "", left))
		return
	}
	c := find(own.Status.Conditions, kubevirtv1.ConditionHibernationInProgress)
	attached := slices.ContainsFunc(own.Status.VolumeStatus, func(v kubevirtv1.VolumeStatus) bool {
		return v.Name == volumeName(s.ClaimName) && v.HotplugVolume != nil
	})
	if c != nil && c.Status == metav1.ConditionTrue || attached {
		return
	}
	h.first = append(h.first, r.dispose(s)...)
	h.status = nil
	if r.outdatedOnly(own) {
		return
	}
	h.tell(corev1.EventTypeNormal, reasonHibernationCancelled, "The hibernation was cancelled, and the guest goes on")
}

// outdatedOnly: another hibernation begins at once.
func (r *ruling) outdatedOnly(own *kubevirtv1.VirtualMachineInstance) bool { return r.saves(own) }

// ask makes or checks the claim, and has the instance saved to it.
func (r *ruling) ask(own *kubevirtv1.VirtualMachineInstance) {
	h, room := &r.hibernation, roomFor(own)
	s := h.status
	if s.Mode == kubevirtv1.HibernateSave {
		switch why := r.unsuitable(s.ClaimName, room); {
		case r.claims[s.ClaimName] == nil && s.ClaimCreated:
			h.then = append(h.then, action.CreateClaim{Claim: newClaim(r.observed, s.ClaimName, room)})
			return
		case why != "" && s.ClaimCreated && s.Phase != kubevirtv1.HibernationFailed:
			r.failSave(reasonClaimUnsuitable, why)
			retry := metav1.NewTime(r.now.Add(saveRetry(s.Failures))).Rfc3339Copy()
			s.RetryTimestamp = &retry
		case why != "" && s.ClaimCreated && s.RetryTimestamp != nil && !awaited(s.RetryTimestamp, r.now):
			h.first = append(h.first, r.dispose(s)...)
			r.attempt()
			r.choose(own)
		case why != "" && s.ClaimName != namedClaim(r.vm) && !s.ClaimCreated:
			r.choose(own) // the claim that the pod mounts is too small by now, or gone
		case why != "":
			r.failSave(reasonClaimUnsuitable, why)
		}
		if r.unsuitable(s.ClaimName, room) != "" {
			if s.RetryTimestamp != nil {
				h.again = s.RetryTimestamp.Time
			}
			return
		}
	}
	if !run.Steady(own) {
		return
	}
	r.attempt()
	s.Phase = kubevirtv1.HibernationReadyToHotPlug
	h.then = append(h.then, direct(own, s.Mode, r.saveVolumes(own)))
}

// saveVolumes are an instance's utility volumes with the one that it is saved to as the last of them,
// by which the instance knows it. Those of earlier hibernations whose claims went with them go.
func (r *ruling) saveVolumes(own *kubevirtv1.VirtualMachineInstance) []kubevirtv1.UtilityVolume {
	s := r.hibernation.status
	if s.Mode != kubevirtv1.HibernateSave {
		return own.Spec.UtilityVolumes
	}
	var all []kubevirtv1.UtilityVolume
	to := utilityVolume(s.ClaimName)
	for _, v := range own.Spec.UtilityVolumes {
		switch {
		case forMemory(v) && v.ClaimName == s.ClaimName:
			to = v
		case !forMemory(v), own.Spec.RestoreFrom != nil && v.ClaimName == own.Spec.RestoreFrom.ClaimName,
			slices.Contains(keptClaims(r.vm), v.ClaimName), v.ClaimName == namedClaim(r.vm):
			all = append(all, v)
		}
	}
	return append(all, to)
}

// attempt begins a new attempt after a failure.
func (r *ruling) attempt() {
	s := r.hibernation.status
	if s.Phase == kubevirtv1.HibernationFailed {
		s.Phase = kubevirtv1.HibernationInitial
		s.StartTimestamp, s.CompletionTimestamp, s.RetryTimestamp, s.Reason, s.Message = r.stamp(), nil, nil, "", ""
	}
}

// follow reads from the instance how far the save is.
func (r *ruling) follow(own *kubevirtv1.VirtualMachineInstance) {
	s := r.hibernation.status
	attached := false
	for _, v := range own.Status.VolumeStatus {
		if s.ClaimName == "" || v.PersistentVolumeClaimInfo == nil || v.PersistentVolumeClaimInfo.ClaimName != s.ClaimName {
			continue
		}
		attached = v.Phase == "MountedToPod" || v.Phase == "Ready"
		if v.HibernationInfo != nil {
			s.FileName = action.Clip(v.HibernationInfo.TargetFileName, 255)
		}
	}
	c := find(own.Status.Conditions, kubevirtv1.ConditionHibernationInProgress)
	if c != nil && c.Status == metav1.ConditionFalse {
		r.failSave(c.Reason, c.Message)
		return
	}
	if s.Phase == kubevirtv1.HibernationFailed && c == nil {
		return
	}
	r.attempt()
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
func (r *ruling) failSave(reason, message string) {
	h := &r.hibernation
	s := h.status
	message = action.Clip(message, action.Longest)
	if s.Phase != kubevirtv1.HibernationFailed || s.Reason != reason {
		s.Failures, s.CompletionTimestamp = min(max(s.Failures, 0), 1000)+1, r.stamp()
		h.tell(corev1.EventTypeWarning, reasonHibernationFailed, "%s: %s", reason, message)
	}
	s.Phase, s.Reason, s.Message = kubevirtv1.HibernationFailed, action.Clip(reason, 64), message
}

// saveRetry is how long the next attempt waits after so many failures: 10 s, twice as long after
// each, five minutes at most. The count is the status's, so that the next
// leader continues it; wait.Backoff keeps a count of its own.
func saveRetry(failures int32) time.Duration {
	return min(backoffBase<<min(max(failures-1, 0), 10), backoffMost)
}

// warn tells once of a hibernation that takes too long, with all its attempts. It goes on.
func (r *ruling) warn() {
	h := &r.hibernation
	s, limit := h.status, warningTimeout(r.observed)
	if s == nil || s.FirstStartTimestamp == nil || limit <= 0 {
		return
	}
	if at := s.FirstStartTimestamp.Add(limit); r.now.Before(at) {
		if h.again.IsZero() || at.Before(h.again) {
			h.again = at
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
		h.tell(corev1.EventTypeWarning, reasonHibernationTimeout, "%s", message)
	}
}

// direct tells an instance how its guest is to end; empty: it goes on.
func direct(own *kubevirtv1.VirtualMachineInstance, stop string, volumes []kubevirtv1.UtilityVolume) action.DirectInstance {
	return action.DirectInstance{Instance: own, Stop: stop, Volumes: volumes}
}
