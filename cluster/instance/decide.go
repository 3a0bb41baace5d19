package instance

import (
	"time"

	"github.com/vmlet/vmlet/cluster/instance/action"
	"github.com/vmlet/vmlet/cluster/instance/attach"
	"github.com/vmlet/vmlet/cluster/instance/guest"
	"github.com/vmlet/vmlet/cluster/instance/lifecycle"
	"github.com/vmlet/vmlet/cluster/instance/save"
	"github.com/vmlet/vmlet/cluster/instance/status"
	"github.com/vmlet/vmlet/cluster/instance/view"
)

// decide returns the next action; nil if there is none: the instance is looked at again after the time that it
// returns, though nothing has changed; 0: never. It is a function of its argument alone: it can be asked
// again after each action, after a crash and by two controllers at once, as each action is
// allowed by what is observed and not by what was done before.
//
// What keeps a VM from running twice: a pod is made only for an instance whose status knows
// of none; a pod keeps its finalizer until its VM has ended and the instance's status says
// so, for good; and the instance keeps its own until then.
func decide(v *view.View) (next action.Action, again time.Duration) {
	rules := []func(*view.View) action.Action{save.Cancel, lifecycle.EndOthers}
	if v.Instance != nil {
		rules = append(rules,
			lifecycle.Protect, lifecycle.CreatePod, lifecycle.ConfirmEnd, lifecycle.EndPod,
			status.Write, save.Start, lifecycle.HurryGuest, guest.StandBy, guest.Resize, attach.Detach, attach.Attach,
			lifecycle.ReleasePod, lifecycle.Finalize, lifecycle.LabelInstance, lifecycle.RelabelPod)
	}
	for _, rule := range rules {
		if next := rule(v); next != nil {
			return next, 0
		}
	}
	return nil, nextLook(v)
}
