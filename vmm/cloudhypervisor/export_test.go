package cloudhypervisor

import (
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/vmm"
)

// PlanUnvalidated is Plan without what validation refuses.
func PlanUnvalidated(req vmm.PlanRequest) (*plan.Plan, error) {
	b, err := newBuilder(req)
	if err != nil {
		return nil, err
	}
	return b.plan()
}
