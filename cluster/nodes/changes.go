package nodes

import (
	"context"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// changes are the pods with news, each once.
type changes struct {
	out  chan PodKey
	wake chan struct{}

	mu      sync.Mutex
	waiting map[types.UID]PodKey
}

func newChanges() *changes {
	return &changes{out: make(chan PodKey), wake: make(chan struct{}, 1), waiting: make(map[types.UID]PodKey)}
}

// add does not wait for who takes them.
func (c *changes) add(pods map[types.UID]PodKey) {
	if len(pods) == 0 {
		return
	}
	c.mu.Lock()
	maps.Copy(c.waiting, pods)
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run hands them out until ctx ends.
func (c *changes) run(ctx context.Context) {
	for {
		c.mu.Lock()
		taken := c.waiting
		c.waiting = make(map[types.UID]PodKey)
		c.mu.Unlock()
		for _, pod := range taken {
			select {
			case c.out <- pod:
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
