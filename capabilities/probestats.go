package capabilities

import (
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"sync"
	"time"
)

// ProbeStats is how often the machine was asked for its document, with what
// outcome, and how long that took all together.
type ProbeStats struct {
	// Complete documents lack nothing, Partial ones have facts that could not be
	// asked, and Failed is where there was none.
	Complete, Partial, Failed uint64
	Duration                  time.Duration
}

// Count is how often it was asked.
func (s ProbeStats) Count() uint64 { return s.Complete + s.Partial + s.Failed }

// probeStats counts.
type probeStats struct {
	mu  sync.Mutex
	now ProbeStats
}

func (p *probeStats) count(doc *capabilitiesv1.Capabilities, err error, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now.Duration += took
	switch {
	case err != nil:
		p.now.Failed++
	case len(doc.GetUnknown()) > 0:
		p.now.Partial++
	default:
		p.now.Complete++
	}
}

// Probes says how the machine was asked so far.
func (k *Keeper) Probes() ProbeStats {
	k.stats.mu.Lock()
	defer k.stats.mu.Unlock()
	return k.stats.now
}

// Latest is the last document that was made, whether it still holds or not; nil:
// there is none. It asks nothing.
func (k *Keeper) Latest() *capabilitiesv1.Capabilities {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.doc
}
