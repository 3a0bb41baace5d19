package podvm

import (
	"sync"
	"time"

	"github.com/vmlet/vmlet/agent/pods"
)

// takeUpPatience is how long the VMs that were there at the agent's start are waited for. A pod
// whose shim doesn't answer holds up what the agent says of all others no longer.
const takeUpPatience = 30 * time.Second

// arrivals are the volumes that were there at the agent's start, until each has been looked
// into once.
type arrivals struct {
	once sync.Once
	done chan struct{}

	mu     sync.Mutex
	listed bool
	open   map[pods.Volume]struct{}
}

func newArrivals() *arrivals {
	return &arrivals{done: make(chan struct{}), open: make(map[pods.Volume]struct{})}
}

// list says which they are.
func (a *arrivals) list(volumes []pods.Volume) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, v := range volumes {
		a.open[v] = struct{}{}
	}
	a.listed = true
	a.settle()
}

// looked says that a volume has been looked into: its VM has been taken up, or refused, or
// there is none, or it can't be taken up for now.
func (a *arrivals) looked(v pods.Volume) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.open, v)
	a.settle()
}

// settle ends it when all have been looked into; mu is held.
func (a *arrivals) settle() {
	if a.listed && len(a.open) == 0 {
		a.end()
	}
}

// end waits for no more.
func (a *arrivals) end() { a.once.Do(func() { close(a.done) }) }
