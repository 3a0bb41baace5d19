package instance

import (
	"slices"
	"strings"

	"github.com/vmlet/vmlet/cluster/imports"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/view"
)

// waitsFor is why the pod can't be made yet; nil: it can.
func waitsFor(o *view.View) *condition.Fault {
	if o.Fault != nil {
		return o.Fault
	}
	for _, p := range o.Others {
		if !p.Ended() {
			return &condition.Fault{Reason: condition.ReasonFailedCreate, Message: "pod " + p.Name + " of an earlier instance of this name has not ended: " +
				"this one starts when it has; see kubectl describe pod " + p.Name}
		}
	}
	var missing []string
	for _, name := range claimNames(o.Instance) {
		claim := o.Claims[name]
		switch {
		case claim == nil:
			missing = append(missing, name)
		case claim.DeletionTimestamp != nil:
			return &condition.Fault{Reason: condition.ReasonClaimNotFound, Message: "PersistentVolumeClaim " + name + " is being deleted, which " +
				"ends with the last pod that has it: this VM starts when there is another of that name"}
		case o.Filling[name] != nil:
			return o.Filling[name]
		}
	}
	if missing != nil {
		return &condition.Fault{Reason: condition.ReasonClaimNotFound, Message: "there is no PersistentVolumeClaim " + strings.Join(missing, ", ") +
			" in namespace " + o.Instance.Namespace + ": create it, or correct the name in spec.volumes"}
	}
	return claimInUse(o.Instance, o.Users)
}

// refilled: a claim is being filled, and the pod's VM would take its disk for a complete one: it was
// deleted and made again before the pod had a node.
func refilled(o *view.View) bool {
	return slices.ContainsFunc(claimNames(o.Instance), func(name string) bool {
		claim := o.Claims[name]
		if claim == nil {
			return false
		}
		state := imports.Read(claim)
		return state != nil && !state.Done()
	})
}
