package save

import (
	"path"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/cluster/saves"
)

// SetTargets puts into the status of the volume where the guest's memory goes. What was recorded stays
// until another try begins, or nobody wants one and the guest is known to go on: it may have been
// saved there though the call for it failed.
func SetTargets(v *view.View, s *kubevirtv1.VirtualMachineInstanceStatus) {
	volume := convert.HibernationVolume(v.Instance)
	for i := range s.VolumeStatus {
		w := &s.VolumeStatus[i]
		last, target := volume != nil && w.Name == volume.Name, ""
		since := began(v, w.HibernationInfo)
		switch {
		case last && v.StopStrategy() == kubevirtv1.HibernateSave && startable(v, s.Phase):
			target = directoryPrefix(v.Instance.Name) + v.Now.UTC().Format(directoryTime)
		case last && v.StopStrategy() == kubevirtv1.HibernateSave && Wanted(v):
			target = path.Base(v.Call.Directory)
		case IsTarget(v, *w) && v.StopStrategy() == "" && !Unresolved(v):
			w.HibernationInfo = nil
			continue
		default:
			continue
		}
		w.HibernationInfo = &kubevirtv1.HibernationInfo{ClaimName: volume.ClaimName, TargetFileName: target, StartTimestamp: since}
	}
}

// began is when the first try of a save that was Queued began; nil: none has, or it never waited. It
// stays for as long as the save is wanted.
func began(v *view.View, recorded *kubevirtv1.HibernationInfo) *metav1.Time {
	switch {
	case recorded != nil && recorded.StartTimestamp != nil:
		return recorded.StartTimestamp
	case Wanted(v) && v.Call.State != saves.Queued && queued(v):
		return new(metav1.NewTime(v.Call.Begun.UTC().Truncate(time.Second)))
	}
	return nil
}

// queued: the status says that the save waits for its turn.
func queued(v *view.View) bool {
	c := condition.Find(v.Instance.Status.Conditions, kubevirtv1.ConditionHibernationInProgress)
	return c != nil && c.Reason == condition.ReasonQueued
}
