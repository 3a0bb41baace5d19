package vm

import (
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/wait"
)

// How many events of one VMM are looked at, in a second and at once. A guest can have
// its VMM tell of panics as often as it likes, and what is in a pod may be no VMM at
// all. What is more stays where it comes from, and is dropped and counted there.
const (
	eventRate  = 10
	eventBurst = 500
	// complaintEvery is how often the log has a line about one VMM's events.
	complaintEvery = 10 * time.Second
	// silenceFirst and silenceLast are how long a monitor that could not be connected is
	// left alone, at first and in the end: its VMM may be paused for a while, as when its
	// disk does.
	silenceFirst = time.Second
	silenceLast  = 30 * time.Second
)

// newBackoff returns waits that are twice as long each time.
func newBackoff(first, last time.Duration) *wait.Backoff {
	return &wait.Backoff{Duration: first, Factor: 2, Steps: 64, Cap: last}
}

// How often a monitor that was lost, or the shim in a pod's volume, is connected to: some times at once, as when a
// container is restarted, and then at intervals.
const (
	DialInterval = 2 * time.Second
	DialBurst    = 5
)

// pace is how fast a watcher takes what it receives. It is for one goroutine.
type pace struct {
	events *rate.Limiter
	// connects is how often a monitor that was lost is connected again.
	connects *rate.Limiter
	// complaints is how often the log gets a line about too many, or too large events.
	complaints *rate.Limiter
}

func newPace() *pace {
	return &pace{
		events:     rate.NewLimiter(eventRate, eventBurst),
		connects:   rate.NewLimiter(rate.Every(DialInterval), DialBurst),
		complaints: rate.NewLimiter(rate.Every(complaintEvery), 1),
	}
}

// turn returns a channel that fires when the next may be taken; nil: at once.
func turn(l *rate.Limiter) <-chan time.Time {
	if wait := l.Reserve().Delay(); wait > 0 {
		return time.After(wait)
	}
	return nil
}
