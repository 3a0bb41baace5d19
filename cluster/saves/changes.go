package saves

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// changes are the VMs of whose calls something new is known, each once.
type changes struct {
	out  chan types.NamespacedName
	wake chan struct{}

	mu      *sync.Mutex
	waiting map[types.NamespacedName]bool
}

func newChanges() changes {
	return changes{
		out: make(chan types.NamespacedName), wake: make(chan struct{}, 1),
		mu: new(sync.Mutex), waiting: make(map[types.NamespacedName]bool),
	}
}

// add does not wait for who takes it.
func (c changes) add(vm types.NamespacedName) {
	c.mu.Lock()
	c.waiting[vm] = true
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// take returns one; false: there is none.
func (c changes) take() (types.NamespacedName, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for vm := range c.waiting {
		delete(c.waiting, vm)
		return vm, true
	}
	return types.NamespacedName{}, false
}

// run hands them out until ctx ends.
func (c changes) run(ctx context.Context) {
	for {
		for {
			vm, any := c.take()
			if !any {
				break
			}
			select {
			case c.out <- vm:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-c.wake:
		case <-ctx.Done():
			return
		}
	}
}
