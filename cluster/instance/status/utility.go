package status

import (
	"cmp"
	"slices"
	"strings"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/instance/attach"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/save"
	"github.com/vmlet/vmlet/cluster/instance/view"
)

// Phases of a volume that is attached to a pod that runs, as KubeVirt spells them, after
// volumePending.
const (
	volumeOnNode = kubevirtv1.VolumeOnNode
	volumeInPod  = kubevirtv1.VolumeInPod
)

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
		if gone && save.IsTarget(o, s) && save.Unresolved(o) {
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
	if attach.MountedFromStart(o.Pod.Pod, claim) {
		if _, runs := o.Pod.Runs(); runs {
			s.Phase = volumeReady
		}
		return
	}
	p := attach.Pod(o, claim)
	if p != nil && p.DeletionTimestamp == nil {
		s.HotplugVolume = &kubevirtv1.HotplugVolumeStatus{AttachPodName: p.Name, AttachPodUID: p.UID}
		switch {
		case attach.Attached(p, o.Pod.Spec.NodeName):
			s.Phase = volumeInPod
		case p.Spec.NodeName != "":
			s.Phase = volumeOnNode
		}
	}
	if attach.Wanted(o) == claim {
		if f := attach.Fault(o, claim); f != nil {
			s.Reason, s.Message = f.Reason, condition.Sentence(f.Message)
		}
	}
}
