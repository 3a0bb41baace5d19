package nodeobject

import (
	"time"

	"github.com/vmlet/vmlet/agent/kube"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

// How often the Node is written at most: bucketSize writes at once, then one each
// bucketRefill; and of those in the long run supplySize, then one each supplyRefill.
// Who has to wait that often in a row to put something back is fighting with somebody.
const (
	bucketSize   = 10
	bucketRefill = 6 * time.Second
	supplySize   = 60
	supplyRefill = 5 * time.Minute
	bucketTrials = 3
)

// bucket bounds the writes. It is for one goroutine.
type bucket struct {
	tokens, supply *rate.Limiter
	// until is when the next write is due that had to wait; zero: none waits.
	until time.Time
	// waits is how many writes in a row had to wait.
	waits int
}

func newBucket() *bucket {
	return &bucket{
		tokens: rate.NewLimiter(rate.Every(bucketRefill), bucketSize),
		supply: rate.NewLimiter(rate.Every(supplyRefill), supplySize),
	}
}

// forgive has it count the writes that have to wait anew. There are no more of them.
func (b *bucket) forgive() { b.until, b.waits = time.Time{}, 0 }

// verdict is what a bucket says to a write.
type verdict int

const (
	// writeNow: the write is paid for.
	writeNow verdict = iota
	// writeLater: it has to wait, as was said before.
	writeLater
	// throttled: it has to wait, and that is new.
	throttled
	// exhausted: it is one too many that has to wait.
	exhausted
)

// take asks for a write. However often it asks while it has to wait, it waits once.
func (b *bucket) take(now time.Time) verdict {
	if now.Before(b.until) {
		return writeLater
	}
	token, share := b.tokens.ReserveN(now, 1), b.supply.ReserveN(now, 1)
	delay := max(token.DelayFrom(now), share.DelayFrom(now))
	if delay < time.Millisecond { // it reckons in fractions
		if b.until.IsZero() {
			b.waits = 0 // the last one didn't have to wait, nor does this one
		}
		b.until = time.Time{}
		return writeNow
	}
	token.CancelAt(now)
	share.CancelAt(now)
	b.until = now.Add(delay)
	if b.waits++; b.waits >= bucketTrials {
		return exhausted
	}
	return throttled
}

// wait is how long a write has to wait that take has put off.
func (b *bucket) wait(now time.Time) time.Duration { return max(b.until.Sub(now), 0) }

// After an error it is tried again after a second, and then ever more seldom:
// most seldom what somebody has to do something about.
const (
	retryFirst   = time.Second
	retryLast    = time.Minute
	retryRefused = 5 * time.Minute
)

// retry says when to try again. It is for one goroutine.
type retry struct {
	backoff wait.Backoff
	until   time.Time
}

func newRetry() *retry {
	r := &retry{}
	r.reset()
	return r
}

// reset: it went well.
func (r *retry) reset() {
	r.until = time.Time{}
	r.backoff = wait.Backoff{Duration: retryFirst, Factor: 2, Jitter: 0.2, Steps: 64, Cap: retryRefused}
}

// failed returns how long to wait: what the API server asks for, if that is more.
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

// wait is how long there is still to be waited.
func (r *retry) wait(now time.Time) time.Duration { return max(r.until.Sub(now), 0) }
