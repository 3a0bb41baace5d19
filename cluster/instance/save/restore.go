package save

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/instance/attach"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/contract"
)

// RestoreReason is why a guest did not go on from its image, in a word.
func RestoreReason(v *view.View, why condition.Fault) string {
	for _, e := range []contract.Ending{v.Ending(false), contract.ReadSentence(why.Message)} {
		if contract.RestoreRefused(e.Reason) {
			return e.Reason
		}
	}
	return cmp.Or(why.Reason, condition.ReasonRestoreFailed)
}

// RestoreCondition is the condition HibernationRestoreInProgress of an instance that comes to a phase; nil:
// its guest boots, or runs.
func RestoreCondition(v *view.View, phase kubevirtv1.Phase, why condition.Fault) *kubevirtv1.Condition {
	image := convert.RestoreFrom(v.Instance)
	if image == nil || phase == kubevirtv1.PhaseSucceeded || v.Ran(phase) {
		return nil
	}
	c := condition.New(kubevirtv1.ConditionHibernationRestoreInProgress, metav1.ConditionTrue, condition.ReasonResuming,
		"the guest goes on from image "+image.Directory+" on claim "+image.ClaimName)
	if claim := attach.ImageClaim(v); claim != "" && v.Pod.Bound() && !attach.Attached(attach.Pod(v, claim), v.Pod.Spec.NodeName) {
		c.Reason, c.Message = condition.ReasonAttaching, "claim "+claim+" is attached to the VM's pod on node "+v.Pod.Spec.NodeName
		if f := attach.Fault(v, claim); f != nil {
			c.Reason, c.Message = f.Reason, f.Message
		}
	}
	if view.IsFinal(phase) {
		c = condition.New(c.Type, metav1.ConditionFalse, cmp.Or(why.Reason, condition.ReasonRestoreFailed), why.Message)
	}
	return &c
}

// WaitsForNode says that a guest which goes on from an image waits for a node like the one that it was
// saved on; empty: it boots.
func WaitsForNode(v *view.View) string {
	image := convert.RestoreFrom(v.Instance)
	if image == nil {
		return ""
	}
	text := "; the guest was saved"
	if image.NodeName != "" {
		text += " on node " + image.NodeName
	}
	text += " and waits for a node like that"
	if len(image.NodeSelector) > 0 {
		var labels []string
		for key, value := range image.NodeSelector {
			labels = append(labels, key+"="+value)
		}
		slices.Sort(labels)
		text += ", with the labels " + strings.Join(labels, ", ")
	}
	return text
}
