package hypervisor

import (
	"context"
	"sync"
)

// Once returns the hypervisors for one decision: each is checked when it is first asked, and not again, so that the decision
// goes by one answer, for which the machine is looked at once. May be used concurrently.
func (r *Registry) Once() *Registry {
	once := &Registry{byName: make(map[string]Hypervisor, len(r.ordered)), aliases: r.aliases, layers: r.layers}
	for _, h := range r.ordered {
		checked := &checkedOnce{Hypervisor: h}
		once.ordered = append(once.ordered, checked)
		once.byName[h.Name()] = checked
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
