package suites

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"
)

const (
	// pace is that of looking at the idle time.
	pace = time.Second
	// tick is the unit of /proc/stat: USER_HZ is 100 on all that vmlet runs on.
	tick = time.Second / 100
	// busy is how many times slower the clock runs while all processors are busy: a guest
	// that hangs in a loop on each of them must not keep a test for ever.
	busy = 8
)

// Patience returns a context that ends once a processor of the machine has been idle for
// so long: what has not happened by then waits for something that does not come. While
// all processors are busy its clock runs slowly, as what is waited for may need one.
func Patience(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	c := &clock{most: most, now: time.Now, idle: idle}
	var look func()
	look = func() {
		if ctx.Err() != nil {
			return
		}
		if err := c.look(); err != nil {
			end(err)
			return
		}
		time.AfterFunc(pace, look)
	}
	look()
	return ctx, func() { end(nil) }
}

// Wait is Patience for a test, which ends before the test binary's -timeout does as well:
// a tenth of what is left of that remains for the test to say what it saw and to clean up.
func Wait(ctx context.Context, t *testing.T, most time.Duration) (context.Context, context.CancelFunc) {
	bounded, cancel := ctx, context.CancelFunc(func() {})
	if end, limited := t.Deadline(); limited {
		bounded, cancel = context.WithDeadlineCause(ctx, end.Add(-time.Until(end)/10), errors.New("-timeout is almost over"))
	}
	patient, done := Patience(bounded, most)
	return patient, func() { done(); cancel() }
}

// clock runs while a processor is idle, and slowly while none is.
type clock struct {
	most time.Duration
	now  func() time.Time
	idle func() (time.Duration, error)

	began, last time.Time
	total       time.Duration // of idle time, at the last look
	spent       time.Duration
}

// look reads the idle time. The error says that the time is over.
func (c *clock) look() error {
	now := c.now()
	total, err := c.idle()
	if err != nil {
		return err
	}
	if c.last.IsZero() {
		c.began = now
	} else {
		passed := now.Sub(c.last)
		c.spent += max(min(passed, total-c.total), passed/busy)
	}
	c.last, c.total = now, total
	if c.spent < c.most {
		return nil
	}
	return fmt.Errorf("not within %v, which counts as %v, as processors were busy", now.Sub(c.began).Round(time.Second), c.most)
}

// idle is how long processors have had nothing to do since the machine started, nor waited
// for a disk: the sum over all of them.
func idle() (time.Duration, error) {
	content, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := bytes.Cut(content, []byte("\n")) // cpu user nice system idle iowait ...
	fields := bytes.Fields(line)
	if len(fields) < 5 || string(fields[0]) != "cpu" {
		return 0, fmt.Errorf("/proc/stat begins with %q", line)
	}
	ticks, err := strconv.ParseInt(string(fields[4]), 10, 64)
	return time.Duration(ticks) * tick, err
}

// After is closed when a test, or its clean-up, has waited long enough, as with Wait.
func After(t *testing.T, most time.Duration) <-chan struct{} {
	ctx, cancel := Wait(context.WithoutCancel(t.Context()), t, most)
	t.Cleanup(cancel)
	return ctx.Done()
}

// Bound ends what is under way on a connection when a test has waited long enough, as with
// Wait.
func Bound(t *testing.T, conn interface{ SetDeadline(time.Time) error }, most time.Duration) {
	ctx, cancel := Wait(context.WithoutCancel(t.Context()), t, most)
	t.Cleanup(cancel)
	context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
}
