package view

import (
	"google.golang.org/grpc/status"

	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/proto/vmlet/node/v1/faults"
)

// InWords is what a node says, bounded and in words of the instance.
func (v *View) InWords(said string) string {
	return convert.InInstanceWords(condition.Clip(said, 4*condition.MaxMessage), &v.Instance.Spec)
}

// FaultWords is what a node says in parts, else in a sentence, in words of the instance.
func (v *View) FaultWords(parts []contract.Fault, said string) string {
	if len(parts) == 0 {
		return v.InWords(said)
	}
	return condition.Clip(convert.FaultsText(parts, &v.Instance.Spec), 4*condition.MaxMessage)
}

// ErrorWords is what an agent's error says, in words of the instance.
func (v *View) ErrorWords(err error) string {
	return v.FaultWords(faults.OfError(err), status.Convert(err).Message())
}
