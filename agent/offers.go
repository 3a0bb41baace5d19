package agent

import (
	"sync"

	"github.com/vmlet/vmlet/deviceplugin"
)

// offers are the managers that offer devices to the kubelet now.
type offers struct {
	mu       sync.Mutex
	begun    bool
	managers []*deviceplugin.Manager
}

// add enters one until the function that it returns is called.
func (o *offers) add(m *deviceplugin.Manager) (remove func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.begun, o.managers = true, append(o.managers, m)
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		var rest []*deviceplugin.Manager
		for _, other := range o.managers {
			if other != m {
				rest = append(rest, other)
			}
		}
		o.managers = rest
	}
}

// status says how each resource stands. False: nothing was offered yet.
func (o *offers) status() (all []deviceplugin.Status, begun bool) {
	o.mu.Lock()
	managers, begun := o.managers, o.begun
	o.mu.Unlock()
	for _, m := range managers {
		all = append(all, m.Status()...)
	}
	return all, begun
}
