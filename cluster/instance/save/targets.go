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
func SetTargets(o *view.View, s *kubevirtv1.VirtualMachineInstanceStatus) {
	v := convert.HibernationVolume(o.Instance)
	for i := range s.VolumeStatus {
		w := &s.VolumeStatus[i]
		last, target := v != nil && w.Name == v.Name, ""
		began := began(o, w.HibernationInfo)
		switch {
		case last && o.StopStrategy() == kubevirtv1.HibernateSave && startable(o, s.Phase):
			target = directoryPrefix(o.Instance.Name) + o.Now.UTC().Format(directoryTime)
		case last && o.StopStrategy() == kubevirtv1.HibernateSave && Wanted(o):
			target = path.Base(o.Call.Directory)
		case IsTarget(o, *w) && o.StopStrategy() == "" && !Unresolved(o):
			w.HibernationInfo = nil
			continue
		default:
			continue
		}
		w.HibernationInfo = &kubevirtv1.HibernationInfo{ClaimName: v.ClaimName, TargetFileName: target, StartTimestamp: began}
	}
}

// began is when the first try of a save that was Queued began; nil: none has, or it never waited. It
// stays for as long as the save is wanted.
func began(o *view.View, recorded *kubevirtv1.HibernationInfo) *metav1.Time {
	switch {
	case recorded != nil && recorded.StartTimestamp != nil:
		return recorded.StartTimestamp
	case Wanted(o) && o.Call.State != saves.Queued && queued(o):
		return new(metav1.NewTime(o.Call.Begun.UTC().Truncate(time.Second)))
	}
	return nil
}

// queued: the status says that the save waits for its turn.
func queued(o *view.View) bool {
	c := condition.Find(o.Instance.Status.Conditions, kubevirtv1.ConditionHibernationInProgress)
	return c != nil && c.Reason == condition.ReasonQueued
}
