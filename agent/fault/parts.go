package fault

import (
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/proto/vmlet/node/v1/faults"
)

// Parts returns what an error says in parts, as the API has them.
func Parts(err error) []*nodev1.Fault { return faults.ToProto(contract.FaultsOf(err)) }
