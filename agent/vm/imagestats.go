package vm

import (
	"sync"
	"time"

	"github.com/vmlet/vmlet/agent/fault"
	"google.golang.org/grpc/codes"
)

// ImageStats are how often memory images were saved or restored since the agent began, and how
// that ended.
type ImageStats struct {
	// Outcomes are counts by a word of a small, fixed set; see outcomeOf.
	Outcomes map[string]uint64
	// Duration and Bytes are those of all that succeeded, together. A restore has no bytes.
	Duration time.Duration
	Bytes    uint64
}

// Succeeded is the outcome of a save or a restore that did.
const Succeeded = "succeeded"

// imageOutcomes are all that there are.
func imageOutcomes() []string {
	return []string{Succeeded, "cancelled", "no-space", "refused", "damaged", "failed"}
}

// outcomeOf is the word for how a save or a restore ended.
func outcomeOf(err error) string {
	if err == nil {
		return Succeeded
	}
	switch fault.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded:
		return "cancelled"
	case codes.ResourceExhausted:
		return "no-space"
	case codes.FailedPrecondition, codes.InvalidArgument, codes.PermissionDenied, codes.AlreadyExists, codes.NotFound:
		return "refused"
	case codes.DataLoss:
		return "damaged"
	}
	return "failed"
}

// imageCounter counts. The zero value is ready for use, by several at a time.
type imageCounter struct {
	mu    sync.Mutex
	stats ImageStats
}

// count adds one that began then and ended so.
func (c *imageCounter) count(begun time.Time, bytes uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stats.Outcomes == nil {
		c.stats.Outcomes = make(map[string]uint64)
	}
	c.stats.Outcomes[outcomeOf(err)]++
	if err == nil {
		c.stats.Duration += time.Since(begun)
		c.stats.Bytes += bytes
	}
}

// get has each outcome, be it 0.
func (c *imageCounter) get() ImageStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.stats
	out.Outcomes = make(map[string]uint64)
	for _, o := range imageOutcomes() {
		out.Outcomes[o] = c.stats.Outcomes[o]
	}
	return out
}
