package view

import (
	"google.golang.org/grpc/status"

	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/proto/vmlet/node/v1/faults"
)

// FaultWords is what a node says in parts, in words of the instance. What an older agent or shim says in a sentence
// alone stays as it is. Both are bounded.
func (v *View) FaultWords(parts []contract.Fault, said string) string {
	if len(parts) == 0 {
		return condition.Clip(said, 4*condition.MaxMessage)
	}
	return condition.Clip(convert.FaultsText(parts, &v.Instance.Spec), 4*condition.MaxMessage)
}

// ErrorWords is what an agent's error says, in words of the instance.
func (v *View) ErrorWords(err error) string {
	return v.FaultWords(faults.OfError(err), status.Convert(err).Message())
}
