package instance

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/instance/action"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/trouble"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/cluster/saves"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// Phases of a volume that is attached to a pod that runs, as KubeVirt spells them, after
// volumePending.
const (
	volumeOnNode = kubevirtv1.VolumeOnNode
	volumeInPod  = kubevirtv1.VolumeInPod
)

// attachPatience is how long a pod may take to attach a volume before what others say of it is
// taken for a failure: schedulers and kubelets complain of what is settled a moment later.
const attachPatience = 10 * time.Second

// mountedFromStart: the VM's pod mounts the claim for the guest's memory itself.
func mountedFromStart(p *corev1.Pod, claim string) bool {
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		if c.Name != contract.ContainerCompute {
			continue
		}
		at := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == contract.HibernationFolder })
		return at >= 0 && slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
			return v.Name == c.VolumeMounts[at].Name && v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
		})
	}
	return false
}

// podOfClaim is the pod through which a claim is attached to the VM's pod; nil: there is none.
func podOfClaim(o *view.View, claim string) *corev1.Pod {
	for _, p := range o.Attachments {
		if attaches(p, claim) {
			return p
		}
	}
	return nil
}

func attaches(p *corev1.Pod, claim string) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
	})
}

// wantedClaim is the claim that is to be attached to the pod; empty: none.
func wantedClaim(o *view.View) string {
	if o.Pod == nil || o.Pod.Gone || o.Pod.Ended() || !o.Pod.Bound() {
		return ""
	}
	if claim := imageClaim(o); claim != "" {
		return claim
	}
	v := convert.HibernationVolume(o.Instance)
	if o.StopStrategy() != kubevirtv1.HibernateSave || v == nil || mountedFromStart(o.Pod.Pod, v.ClaimName) {
		return ""
	}
	return v.ClaimName
}

// imageClaim is the claim that is attached for the guest to go on from, until its status says that it runs:
// its shim has left the claim by then. Empty: none, or the pod mounts it.
func imageClaim(o *view.View) string {
	image := convert.AttachedImage(o.Instance)
	if image == nil || o.Final() || o.Ran(o.Recorded()) || o.Pod == nil || mountedFromStart(o.Pod.Pod, image.ClaimName) {
		return ""
	}
	return image.ClaimName
}

// attachVolume makes the pod of a volume for the guest's memory.
func attachVolume(o *view.View) action.Action {
	claim := wantedClaim(o)
	if claim == "" || o.Pod.Deleting() || o.Refused != nil || unfit(o, claim) != nil || podOfClaim(o, claim) != nil {
		return nil
	}
	if o.Recorded() != kubevirtv1.PhaseRunning && imageClaim(o) == "" {
		return nil
	}
	return action.Attach{Claim: claim}
}

// detachVolume deletes the pods of volumes that nobody wants to be attached any more, and those
// that have ended. It waits for the end of a call: it may have the volume's descriptor.
func detachVolume(o *view.View) action.Action {
	if o.Call != nil && o.Call.State == saves.Running || len(o.Attachments) > 0 && undoesSave(o) {
		return nil
	}
	claim := wantedClaim(o)
	for _, p := range o.Attachments {
		over := p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
		if p.DeletionTimestamp == nil && (claim == "" || !attaches(p, claim) || over) {
			return action.Detach{Attachment: p}
		}
	}
	return nil
}

// undoesSave: the agent still has the volume, and will say when it has not.
func undoesSave(o *view.View) bool {
	return !o.Pod.Ended() && o.Pod.Report.Current && o.Pod.Report.VM.GetStatus().GetState() == nodev1.State_STATE_SAVING
}

// unfit is why a claim can't be attached; nil: it can, as far as is known.
func unfit(o *view.View, claim string) *condition.Fault {
	c := o.Claims[claim]
	switch {
	case c == nil:
		return &condition.Fault{Reason: condition.ReasonAttachFailed, Message: "there is no PersistentVolumeClaim " + claim + " in namespace " + o.Instance.Namespace + purposeOf(o, claim)}
	case c.Spec.VolumeMode != nil && *c.Spec.VolumeMode == corev1.PersistentVolumeBlock:
		return &condition.Fault{Reason: condition.ReasonAttachFailed, Message: "claim " + claim + " has volumeMode Block, and a guest's memory is saved to files: name a claim with volumeMode Filesystem"}
	}
	return nil
}

// purposeOf is what a claim that is missing is needed for, and what to do.
func purposeOf(o *view.View, claim string) string {
	if imageClaim(o) == claim {
		return ", which has the guest's memory: bring it back, or delete pod " + o.Pod.Name
	}
	return " to save the guest's memory to: create it"
}

// memoryReady: the guest's memory can be saved to the volume.
func memoryReady(o *view.View) bool {
	v := convert.HibernationVolume(o.Instance)
	if v == nil || o.Pod == nil || o.Pod.Gone {
		return false
	}
	return mountedFromStart(o.Pod.Pod, v.ClaimName) || attached(podOfClaim(o, v.ClaimName), o.Pod.Spec.NodeName)
}

// attached: the pod hands out the volume on the node of the VM's.
func attached(p *corev1.Pod, node string) bool {
	if p == nil || p.DeletionTimestamp != nil || p.Spec.NodeName != node {
		return false
	}
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.State.Running != nil })
}

// attachProgress is how far the volume is from being attached, and whether that is a failure.
func attachProgress(o *view.View) (f condition.Fault, failed bool) {
	v := convert.HibernationVolume(o.Instance)
	if v == nil {
		return condition.Fault{Reason: condition.ReasonAttachFailed, Message: "spec.utilityVolumes has no volume of type " + kubevirtv1.UtilityHibernation + " to save the guest's memory to"}, true
	}
	if f := attachFault(o, v.ClaimName); f != nil {
		return *f, true
	}
	return condition.Fault{Reason: condition.ReasonAttaching, Message: "claim " + v.ClaimName + " is attached to the VM's pod on node " + o.Pod.Spec.NodeName}, false
}

// attachFault is why a claim is not attached; nil: nothing is known to be wrong.
func attachFault(o *view.View, claim string) *condition.Fault {
	if f := unfit(o, claim); f != nil {
		return f
	}
	if o.Refused != nil {
		return o.Refused
	}
	p := podOfClaim(o, claim)
	if p == nil || o.Now.Before(p.CreationTimestamp.Add(attachPatience)) || attached(p, o.Pod.Spec.NodeName) {
		return nil
	}
	todo := "; see kubectl describe pod " + p.Name
	if imageClaim(o) == claim {
		todo += ", or delete pod " + o.Pod.Name + ": the next one mounts the claim"
	}
	failed := func(why string) *condition.Fault {
		return &condition.Fault{Reason: condition.ReasonAttachFailed, Message: "claim " + claim + " can't be attached to the VM's pod on node " + o.Pod.Spec.NodeName + ": " + why + todo}
	}
	if c := view.PodCondition(p, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse {
		return failed(c.Message)
	}
	if o.AttachTrouble != nil {
		return failed(strings.TrimPrefix(o.AttachTrouble.Message, trouble.DoesNotStart))
	}
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" && w.Reason != "" {
			return failed(w.Reason + ": " + trouble.Volatile.ReplaceAllString(trouble.BackOff.ReplaceAllString(w.Message, "back-off"), "…"))
		}
	}
	return nil
}

// suspiciousAttachment is a pod that has a node and attaches nothing for so long that its events
// are read; nil: there is none.
func suspiciousAttachment(o *view.View) *corev1.Pod {
	claim := wantedClaim(o)
	if claim == "" {
		return nil
	}
	p := podOfClaim(o, claim)
	if p == nil || p.DeletionTimestamp != nil || p.Spec.NodeName == "" || attached(p, o.Pod.Spec.NodeName) || o.Now.Before(p.CreationTimestamp.Add(attachPatience)) {
		return nil
	}
	return p
}

// nextAttachLook is when a volume that is being attached is looked at again though nothing has
// changed; zero: never.
func nextAttachLook(o *view.View) time.Time {
	claim := wantedClaim(o)
	if claim == "" {
		return time.Time{}
	}
	p := podOfClaim(o, claim)
	if p == nil || attached(p, o.Pod.Spec.NodeName) {
		return time.Time{}
	}
	if first := p.CreationTimestamp.Add(attachPatience); o.Now.Before(first) {
		return first
	}
	return o.Now.Add(trouble.QuietInterval)
}

// utilityStatuses are those of the volumes for the guest's memory. One that was taken from the
// instance stays while the guest may have been saved to it.
func utilityStatuses(o *view.View, recorded map[string]kubevirtv1.VolumeStatus) (all []kubevirtv1.VolumeStatus) {
	wanted := convert.HibernationVolumes(o.Instance)
	for _, v := range wanted {
		s := recorded[v.Name]
		s.Name, s.Phase, s.Reason, s.Message, s.HotplugVolume = v.Name, volumePending, "", "", nil
		if claim := o.Claims[v.ClaimName]; claim != nil {
			s.PersistentVolumeClaimInfo, s.Size = claimInfo(claim), convert.ClaimSize(claim)
		}
		if image := convert.RestoreFrom(o.Instance); s.HibernationInfo == nil && image != nil && image.ClaimName == v.ClaimName {
			s.HibernationInfo = &kubevirtv1.HibernationInfo{ClaimName: v.ClaimName, TargetFileName: image.Directory}
		}
		utilityPhase(o, &s, v.ClaimName)
		all = append(all, s)
	}
	for name, s := range recorded {
		gone := !slices.ContainsFunc(wanted, func(v *kubevirtv1.UtilityVolume) bool { return v.Name == name })
		if gone && isTarget(o, s) && unresolved(o) {
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(a, b kubevirtv1.VolumeStatus) int {
		return cmp.Or(indexOf(wanted, a.Name)-indexOf(wanted, b.Name), strings.Compare(a.Name, b.Name))
	})
	return all
}

// indexOf is a volume's place; those that are not there come last.
func indexOf(all []*kubevirtv1.UtilityVolume, name string) int {
	i := slices.IndexFunc(all, func(v *kubevirtv1.UtilityVolume) bool { return v.Name == name })
	if i < 0 {
		return len(all)
	}
	return i
}

// utilityPhase is how far a volume is attached.
func utilityPhase(o *view.View, s *kubevirtv1.VolumeStatus, claim string) {
	if o.Pod == nil || o.Pod.Gone {
		return
	}
	if mountedFromStart(o.Pod.Pod, claim) {
		if _, runs := o.Pod.Runs(); runs {
			s.Phase = volumeReady
		}
		return
	}
	p := podOfClaim(o, claim)
	if p != nil && p.DeletionTimestamp == nil {
		s.HotplugVolume = &kubevirtv1.HotplugVolumeStatus{AttachPodName: p.Name, AttachPodUID: p.UID}
		switch {
		case attached(p, o.Pod.Spec.NodeName):
			s.Phase = volumeInPod
		case p.Spec.NodeName != "":
			s.Phase = volumeOnNode
		}
	}
	if wantedClaim(o) == claim {
		if f := attachFault(o, claim); f != nil {
			s.Reason, s.Message = f.Reason, condition.Sentence(f.Message)
		}
	}
}
