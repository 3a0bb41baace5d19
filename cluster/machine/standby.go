package machine

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmlet/vmlet/cluster/machine/action"
	"github.com/vmlet/vmlet/cluster/machine/run"
	"github.com/vmlet/vmlet/contract"
)

// mark has the VM's instance say whether the VM stands by, and whether its guest is to be paused meanwhile. Only the
// instance that its pool means is paused: another one boots first.
func mark(o state) []action.Action {
	own := o.own()
	if own == nil || run.StageOf(own) != run.Alive {
		return nil
	}
	standby, paused := o.vm.Labels[contract.LabelPoolStandby], types.UID(o.vm.Annotations[contract.AnnotationPoolPaused])
	if paused != own.UID || standby == "" {
		paused = ""
	}
	if own.Labels[contract.LabelPoolStandby] == standby && own.Annotations[contract.AnnotationPoolPaused] == string(paused) {
		return nil
	}
	return []action.Action{action.MarkInstance{Instance: own, Standby: standby, Paused: paused}}
}

// marks are an instance's fields, without its resource version: nobody else writes these.
func marks(a action.MarkInstance) map[string]any {
	value := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	return map[string]any{"metadata": map[string]any{
		"uid":         a.Instance.UID,
		"labels":      map[string]any{contract.LabelPoolStandby: value(a.Standby)},
		"annotations": map[string]any{contract.AnnotationPoolPaused: value(string(a.Paused))},
	}}
}
