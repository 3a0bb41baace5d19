package suites

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// TestClock: it runs by what processors were idle, no faster than time does, and slowly
// while all are busy.
func TestClock(t *testing.T) {
	const most = time.Minute
	for name, test := range map[string]struct {
		idle  time.Duration // in each second, of all processors
		looks int           // until it is over
	}{
		"all busy":         {0, 60*busy + 1},
		"one of two idle":  {time.Second, 61},
		"half of one idle": {time.Second / 2, 121},
		"sixty-four idle":  {64 * time.Second, 61},
	} {
		t.Run(name, func(t *testing.T) {
			var now time.Time
			total := time.Hour
			c := &clock{most: most, now: func() time.Time { return now }, idle: func() (time.Duration, error) { return total, nil }}
			now = time.Unix(1, 0)
			looks := 1
			for ; c.look() == nil && looks < 1000; looks++ {
				now, total = now.Add(time.Second), total+test.idle
			}
			if looks != test.looks {
				t.Errorf("it is over after %d looks, want %d", looks, test.looks)
			}
		})
	}
}

// TestPatience: it ends when its time is over, with its parent, and when it is cancelled.
func TestPatience(t *testing.T) {
	short, cancel := Patience(t.Context(), 0)
	defer cancel()
	<-short.Done()
	if err := context.Cause(short); !strings.Contains(err.Error(), "which counts as 0s") {
		t.Errorf("a short one ends as %v", err)
	}
	parent, end := context.WithCancelCause(t.Context())
	cause := errors.New("its parent has ended")
	child, cancelChild := Wait(parent, t, time.Hour)
	defer cancelChild()
	if at, limited := child.Deadline(); limited {
		if last, _ := t.Deadline(); !at.Before(last) {
			t.Errorf("a test waits until %v, and is ended at %v", at, last)
		}
	}
	end(cause)
	<-child.Done()
	if err := context.Cause(child); !errors.Is(err, cause) {
		t.Errorf("that of a parent that has ended ends as %v", err)
	}
	cancelled, cancelIt := Wait(t.Context(), t, time.Hour)
	cancelIt()
	if err := cancelled.Err(); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled one ends as %v", err)
	}
}
