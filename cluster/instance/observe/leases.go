package observe

import (
	"sync"
	"time"
)

// leases is when each node's Lease was first read with the time that it has now. The zero value
// has none. Its methods may be called concurrently.
type leases struct {
	mu    sync.Mutex
	nodes map[string]sighting
}

type sighting struct{ renewed, at time.Time }

// see notes a Lease's time and returns when it was read first.
func (l *leases) see(node string, renewed, now time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nodes == nil {
		l.nodes = make(map[string]sighting)
	}
	if s, has := l.nodes[node]; has && s.renewed.Equal(renewed) {
		return s.at
	}
	l.nodes[node] = sighting{renewed, now}
	return now
}
