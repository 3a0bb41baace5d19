package run

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// RetryBase is how long the first try after a failure waits at least, RetryMost how long any waits.
	RetryBase = 10 * time.Second
	RetryMost = 300 * time.Second
)

// Awaited reports whether the next try begins at a time to come. One that is further away than any is of another
// leader's clock, or one that was put back, and is not waited for.
func Awaited(next *metav1.Time, now time.Time) bool {
	return next != nil && next.After(now) && next.Sub(now) <= RetryMost
}
