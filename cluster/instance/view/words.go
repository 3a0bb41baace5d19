package view

import (
	"google.golang.org/grpc/status"

	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/proto/vmlet/node/v1/faults"
)

// InWords is what a node says, bounded and in words of the instance.
func (o *View) InWords(said string) string {
	return convert.InInstanceWords(condition.Clip(said, 4*condition.MaxMessage), &o.Instance.Spec)
}

// FaultWords is what a node says in parts, else in a sentence, in words of the instance.
func (o *View) FaultWords(parts []contract.Fault, said string) string {
	if len(parts) == 0 {
		return o.InWords(said)
	}
	return condition.Clip(convert.FaultsText(parts, &o.Instance.Spec), 4*condition.MaxMessage)
}

// ErrorWords is what an agent's error says, in words of the instance.
func (o *View) ErrorWords(err error) string {
	return o.FaultWords(faults.OfError(err), status.Convert(err).Message())
}
