package guest

import (
	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/action"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// StandBy has the guest of a VM that stands by while it runs be paused, and go on when its VM is taken. Then the pod
// serves: its readiness gate is opened, and its label comes off last, as it says until then what is left to do.
func StandBy(v *view.View) action.Action {
	p := v.Pod
	if p == nil || p.Gone || p.Deleting() || p.Ended() || p.Directed || v.Recorded() != kubevirtv1.PhaseRunning || v.StopStrategy() != "" || !p.Report.Current {
		return nil
	}
	switch state := p.Report.VM.GetStatus().GetState(); {
	case state == nodev1.State_STATE_RUNNING && v.Instance.Labels[contract.LabelPoolStandby] != "" && v.Instance.Annotations[contract.AnnotationPoolPaused] == string(v.Instance.UID):
		return action.PauseGuest{Pod: p}
	case state == nodev1.State_STATE_PAUSED && taken(v):
		return action.ResumeGuest{Pod: p}
	case state == nodev1.State_STATE_RUNNING && taken(v) && !serves(p.Pod):
		return action.Serve{Pod: p}
	}
	return nil
}

// Taken: the instance serves, and its pod does not yet, which had it stand by.
func Taken(v *view.View) bool { return taken(v) && !serves(v.Pod.Pod) }

func taken(v *view.View) bool {
	return v.Pod.Labels[contract.LabelPoolStandby] != "" && v.Instance.Labels[contract.LabelPoolStandby] == ""
}

func serves(p *corev1.Pod) bool {
	c := view.PodCondition(p, contract.ConditionServes)
	return c != nil && c.Status == corev1.ConditionTrue
}
