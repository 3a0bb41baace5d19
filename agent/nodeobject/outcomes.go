package nodeobject

import (
	"sync"
	"time"
)

// Outcomes is how publishing has gone since the agent began. Counters only grow.
type Outcomes struct {
	// Applies are writes to the Node that the API server took.
	Applies uint64
	// NoChanges is how often it was looked and nothing was to be written.
	NoChanges uint64
	// Conflicts is how often a key was found to be another manager's;
	// Conflicting are those that are so now.
	Conflicts   uint64
	Conflicting []Conflict
	// Throttled is how often a write had to wait, because there were too many;
	// Pauses how often writing was given up for that.
	Throttled, Pauses uint64
	// Errors are writes that failed, LastError the last one, empty once one has
	// gone well since.
	Errors      uint64
	LastError   string
	LastErrorAt time.Time
	// LastApply is when the Node was last written; zero: not yet.
	LastApply time.Time
	// LeaseRenewals and LeaseErrors count those of the Lease.
	LeaseRenewals, LeaseErrors uint64
	// Labels is how many labels of the Node are ours.
	Labels int
	// Paused: by the annotation AnnotationPaused. Skipped: by AnnotationSkip, or
	// as far as labels go by AnnotationSkipLabels. Aside: for a virt-handler.
	Paused, Skipped, Aside bool
}

// tally is the outcomes as they come.
type tally struct {
	mu sync.Mutex
	o  Outcomes
}

func (t *tally) count(note func(*Outcomes)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	note(&t.o)
}

func (t *tally) get() Outcomes {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.o
}
