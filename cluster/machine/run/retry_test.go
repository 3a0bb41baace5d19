package run

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestAwaited: a next try is waited for, unless it is further away than any.
func TestAwaited(t *testing.T) {
	now := time.Unix(0, 0)
	for after, want := range map[time.Duration]bool{-time.Second: false, 0: false, time.Second: true, RetryMost: true, RetryMost + time.Second: false, time.Hour: false} {
		if got := Awaited(new(metav1.NewTime(now.Add(after))), now); got != want {
			t.Errorf("in %v: %v, want %v", after, got, want)
		}
	}
	if Awaited(nil, now) {
		t.Error("none is waited for")
	}
}
