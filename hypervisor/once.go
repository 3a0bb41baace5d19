package hypervisor

import (
	"context"
	"sync"
)

// Once returns the hypervisors for one decision: each is checked when it is first asked, and not again, so that the decision
// goes by one answer, for which the machine is looked at once. May be used concurrently.
func (l *Local) Once() *Local {
	once := &Local{Registry: l.Registry}
	for _, h := range l.ordered {
		once.ordered = append(once.ordered, &checkedOnce{Hypervisor: h})
	}
	return once
}

// checkedOnce is a hypervisor that is checked once.
type checkedOnce struct {
	Hypervisor
	once   sync.Once
	status Status
}

func (c *checkedOnce) Check(ctx context.Context) Status {
	c.once.Do(func() { c.status = c.Hypervisor.Check(ctx) })
	return c.status
}

// Unwrap is for As.
func (c *checkedOnce) Unwrap() Hypervisor { return c.Hypervisor }
