package claims

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/claimuse"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/view"
)

// PodUses are those of a VM's pod, or of one that fills a claim; none of another's.
func PodUses(p *corev1.Pod) []claimuse.Use {
	if view.InstanceOf(p) == "" && !claimuse.Fills(p) {
		return nil
	}
	return claimuse.OfPod(p, nil)
}

// OfPod are the claims of PodUses.
func OfPod(p *corev1.Pod) (names []string) {
	for _, use := range PodUses(p) {
		names = append(names, use.Claim)
	}
	return names
}

// InUse is why an instance without a pod must wait: another VM uses one of its claims, or is about to, and both can't
// at the same time. nil: none does. Of two that have no pod yet the older one goes first, unless something else keeps
// that from having one, or it is passed: a VM that restarts would wait for as long as all those run that it gets on with. VMs
// that are made after the older one asked do wait for it, or it would never have its turn. Nobody waits for a younger one,
// and an instance with a pod waits for nobody, so that none waits for itself.
func InUse(vmi *kubevirtv1.VirtualMachineInstance, users []view.ClaimUser) *condition.Fault {
	for _, own := range claimuse.OfInstance(vmi) {
		for _, u := range users {
			at := slices.IndexFunc(UsesOf(u), own.Excludes)
			if at < 0 || !u.Started && !goesBefore(u, vmi) {
				continue
			}
			how := " is in use by "
			if !u.Started {
				how = " is first for "
			}
			return &condition.Fault{Reason: condition.ReasonClaimInUse, Message: "claim " + own.Claim + how + UserName(u) + whyInUse(own, UsesOf(u)[at])}
		}
	}
	return nil
}

// whyInUse says why two uses of a claim exclude each other, and what to do.
func whyInUse(own, other claimuse.Use) string {
	text := ", and a disk has one writer"
	switch {
	case !own.Writes:
		text = ", which may write to what this VM reads"
	case !other.Writes:
		text = ", and what is read there must not change"
	}
	text += ": this VM starts when that has ended. Stop that one, or give this one a claim of its own"
	if own.Shareable != other.Shareable {
		text += ". VMs share a claim if its disk is shareable in each of them"
	}
	return text
}

// UsesOf are the uses of one that uses claims.
func UsesOf(u view.ClaimUser) []claimuse.Use {
	if u.Instance == nil {
		return PodUses(u.Pod)
	}
	return claimuse.OfInstance(u.Instance)
}

// UserName is what one that uses claims is called in messages.
func UserName(u view.ClaimUser) string {
	switch {
	case u.Instance != nil:
		return "VM " + u.Instance.Name
	case claimuse.Fills(u.Pod):
		text := "pod " + u.Pod.Name + ", which imports or copies a disk"
		if owner := metav1.GetControllerOf(u.Pod); owner != nil {
			text += " for VM " + owner.Name + " (its status says how far that is)"
		}
		return text
	}
	return "pod " + u.Pod.Name + " of VM " + view.InstanceOf(u.Pod)
}

// goesBefore: neither has a pod, and the other one may have it first. It may wait for a claim that this one
// does not know of.
func goesBefore(u view.ClaimUser, vmi *kubevirtv1.VirtualMachineInstance) bool {
	other, own := u.Instance, claimuse.OfInstance(vmi)
	waits := condition.Find(other.Status.Conditions, kubevirtv1.ConditionSynchronized)
	known := !slices.ContainsFunc(claimuse.OfInstance(other), func(theirs claimuse.Use) bool {
		return !slices.ContainsFunc(own, func(u claimuse.Use) bool { return u.Claim == theirs.Claim })
	})
	if u.Passed || other.DeletionTimestamp != nil || waits != nil && !(waits.Reason == condition.ReasonClaimInUse && known) {
		return false
	}
	if !other.CreationTimestamp.Equal(&vmi.CreationTimestamp) {
		return other.CreationTimestamp.Before(&vmi.CreationTimestamp)
	}
	return other.UID < vmi.UID
}

// HeldBy: one of the uses of those that have pods excludes one of this one's.
func HeldBy(u view.ClaimUser, running map[claimuse.Use]bool) bool {
	return slices.ContainsFunc(UsesOf(u), func(own claimuse.Use) bool {
		for use := range running {
			if own.Excludes(use) {
				return true
			}
		}
		return false
	})
}

// Excludes: the instance can't have one of its claims while this one does.
func Excludes(u view.ClaimUser, vmi *kubevirtv1.VirtualMachineInstance) bool {
	theirs := UsesOf(u)
	return slices.ContainsFunc(claimuse.OfInstance(vmi), func(own claimuse.Use) bool { return slices.ContainsFunc(theirs, own.Excludes) })
}
