package nodeobject

import (
	"time"

	"github.com/vmlet/vmlet/agent/kube"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

// The write budget: at most writesAtOnce writes of the Node in a burst and then one each
// writesEach; in the long run longRunWrites, and then one each longRunEach. A value that
// has to wait maxWaits times in a row to be put back is being fought over.
const (
	writesAtOnce  = 10
	writesEach    = 6 * time.Second
	longRunWrites = 60
	longRunEach   = 5 * time.Minute
	maxWaits      = 3
)

// budget limits the writes. It is for one goroutine.
type budget struct {
	burst, longRun *rate.Limiter
	// until is when the waiting write is due; zero: none waits.
	until time.Time
	// waits counts the writes in a row that had to wait.
	waits int
}

func newBudget() *budget {
	return &budget{
		burst:   rate.NewLimiter(rate.Every(writesEach), writesAtOnce),
		longRun: rate.NewLimiter(rate.Every(longRunEach), longRunWrites),
	}
}

// reset forgets the writes that had to wait; what they have spent stays spent.
func (b *budget) reset() { b.until, b.waits = time.Time{}, 0 }

// verdict is a budget's answer to a write.
type verdict int

const (
	// writeNow: the write is within the budget, and counted.
	writeNow verdict = iota
	// writeLater: it is still waiting.
	writeLater
	// throttled: it has to wait from now on.
	throttled
	// exhausted: it has to wait, as did too many before it.
	exhausted
)

// take asks for a write. However often it asks while it has to wait, it waits once.
func (b *budget) take(now time.Time) verdict {
	if now.Before(b.until) {
		return writeLater
	}
	burst, longRun := b.burst.ReserveN(now, 1), b.longRun.ReserveN(now, 1)
	delay := max(burst.DelayFrom(now), longRun.DelayFrom(now))
	if delay < time.Millisecond { // the limiters round
		if b.until.IsZero() {
			b.waits = 0 // neither the last write had to wait nor this one
		}
		b.until = time.Time{}
		return writeNow
	}
	burst.CancelAt(now)
	longRun.CancelAt(now)
	b.until = now.Add(delay)
	if b.waits++; b.waits >= maxWaits {
		return exhausted
	}
	return throttled
}

// wait is how long the waiting write still has to wait.
func (b *budget) wait(now time.Time) time.Duration { return max(b.until.Sub(now), 0) }

// After an error the write is tried again after retryFirst, and then at growing
// intervals: up to retryRefused where somebody has to act first, else retryLast.
const (
	retryFirst   = time.Second
	retryLast    = time.Minute
	retryRefused = 5 * time.Minute
)

// retry is when to try again. It is for one goroutine.
type retry struct {
	backoff wait.Backoff
	until   time.Time
}

func newRetry() *retry {
	r := &retry{}
	r.reset()
	return r
}

// reset begins with the first interval again.
func (r *retry) reset() {
	r.until = time.Time{}
	r.backoff = wait.Backoff{Duration: retryFirst, Factor: 2, Jitter: 0.2, Steps: 64, Cap: retryRefused}
}

// failed returns how long to wait after an error: at least what the API server asks for.
func (r *retry) failed(now time.Time, err error) time.Duration {
	delay := r.backoff.Step()
	if kube.Remedy(err) == "" || apierrors.IsUnauthorized(err) { // client-go reads a token's file each minute
		delay = min(delay, retryLast)
	}
	if seconds, asked := apierrors.SuggestsClientDelay(err); asked {
		delay = max(delay, min(time.Duration(seconds)*time.Second, retryRefused))
	}
	r.until = now.Add(delay)
	return delay
}

// wait is how long to wait until the next try.
func (r *retry) wait(now time.Time) time.Duration { return max(r.until.Sub(now), 0) }
