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
func utilityStatuses(v *view.View, recorded map[string]kubevirtv1.VolumeStatus) (all []kubevirtv1.VolumeStatus) {
	wanted := convert.HibernationVolumes(v.Instance)
	for _, volume := range wanted {
		s := recorded[volume.Name]
		s.Name, s.Phase, s.Reason, s.Message, s.HotplugVolume = volume.Name, volumePending, "", "", nil
		if claim := v.Claims[volume.ClaimName]; claim != nil {
			s.PersistentVolumeClaimInfo, s.Size = claimInfo(claim), convert.ClaimSize(claim)
		}
		if image := convert.RestoreFrom(v.Instance); s.HibernationInfo == nil && image != nil && image.ClaimName == volume.ClaimName {
			s.HibernationInfo = &kubevirtv1.HibernationInfo{ClaimName: volume.ClaimName, TargetFileName: image.Directory}
		}
		utilityPhase(v, &s, volume.ClaimName)
		all = append(all, s)
	}
	for name, s := range recorded {
		gone := !slices.ContainsFunc(wanted, func(volume *kubevirtv1.UtilityVolume) bool { return volume.Name == name })
		if gone && save.IsTarget(v, s) && save.Unresolved(v) {
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
func utilityPhase(v *view.View, s *kubevirtv1.VolumeStatus, claim string) {
	if v.Pod == nil || v.Pod.Gone {
		return
	}
	if attach.MountedFromStart(v.Pod.Pod, claim) {
		if _, runs := v.Pod.Runs(); runs {
			s.Phase = volumeReady
		}
		return
	}
	p := attach.Pod(v, claim)
	if p != nil && p.DeletionTimestamp == nil {
		s.HotplugVolume = &kubevirtv1.HotplugVolumeStatus{AttachPodName: p.Name, AttachPodUID: p.UID}
		switch {
		case attach.Attached(p, v.Pod.Spec.NodeName):
			s.Phase = volumeInPod
		case p.Spec.NodeName != "":
			s.Phase = volumeOnNode
		}
	}
	if attach.Wanted(v) == claim {
		if f := attach.Fault(v, claim); f != nil {
			s.Reason, s.Message = f.Reason, condition.Sentence(f.Message)
		}
	}
}
