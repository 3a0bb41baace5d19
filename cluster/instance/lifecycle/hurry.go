package lifecycle

import (
	"time"

	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/instance/action"
	"github.com/vmlet/vmlet/cluster/instance/view"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// HurryGuest gives a guest less time to shut down, or none, if its grace period was shortened
// after its pod was made: the pod's own stays as it is. The agent is asked again whenever
// something has changed, and takes the earliest end that it has been asked for. A shim that waits for
// a save when its pod ends stops to wait as well. A guest whose container the kubelet has lost sight
// of is ended by nobody else.
func HurryGuest(v *view.View) action.Action {
	p, grace := v.Pod, v.Instance.Spec.TerminationGracePeriodSeconds
	if p == nil || !p.Deleting() || p.Ended() || p.Hurried || !p.Report.Current || !view.Started(p.Report.VM) {
		return nil
	}
	own := p.Report.VM.GetStatus().GetEffectiveSpec().GetStopGracePeriod()
	switch {
	case grace != nil && *grace <= 0 && (own == nil || own.AsDuration() > 0):
		return action.KillGuest{Pod: p}
	case grace != nil && own != nil && seconds(*grace) < own.AsDuration(), awaitsInVain(v), view.UnseenEnd(p.Pod) != nil:
		return action.HurryGuest{Pod: p}
	}
	return nil
}

// awaitsInVain: the pod is being deleted, its shim waits for a save, and nobody has asked for one.
func awaitsInVain(v *view.View) bool {
	state := v.Pod.Report.VM.GetStatus().GetState()
	return convert.AwaitsSave(v.Instance) && (v.Call == nil || !v.Call.Active()) &&
		(state == nodev1.State_STATE_RUNNING || state == nodev1.State_STATE_PAUSED)
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }
