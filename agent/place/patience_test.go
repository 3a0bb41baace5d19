package place

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestPatienceFor(t *testing.T) {
	for _, c := range []struct {
		base   time.Duration
		memory uint64
		want   time.Duration
	}{
		{20 * time.Second, 0, 20 * time.Second},
		{20 * time.Second, 1, 21 * time.Second},
		{20 * time.Second, 1 << 30, 21 * time.Second},
		{30 * time.Second, 1<<30 + 1, 32 * time.Second},
		{30 * time.Second, 1 << 40, 30*time.Second + 1024*time.Second},
		{0, 1 << 62, 1 << 32 * time.Second},
	} {
		if got := PatienceFor(c.base, c.memory); got != c.want {
			t.Errorf("%v with %d bytes: %v, want %v", c.base, c.memory, got, c.want)
		}
	}
}

// TestWaitFor: what hangs keeps nobody.
func TestWaitFor(t *testing.T) {
	hangs := make(chan struct{})
	defer close(hangs)
	err := waitFor(time.Nanosecond, "the work", func() error { <-hangs; return nil })
	if err == nil || !strings.Contains(err.Error(), "the work") {
		t.Errorf("of what hangs: %v", err)
	}
	broken := errors.New("broken")
	if err := waitFor(time.Hour, "the work", func() error { return broken }); err != broken {
		t.Errorf("of what fails: %v", err)
	}
}
