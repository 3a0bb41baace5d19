package deviceplugin

import (
	"errors"
	"time"
)

// Why a registration doesn't come about, or doesn't hold any more.
var (
	errNoKubelet = errors.New("the kubelet isn't there")
	errSilent    = errors.New("the kubelet doesn't answer")
	errRestarted = errors.New("the kubelet has been restarted")
	errWiped     = errors.New("the socket in the kubelet's folder has been removed")
	errDropped   = errors.New("the kubelet doesn't listen any more")
	errNotHeard  = errors.New("the kubelet has registered the resource and doesn't ask for its devices")
)

// Waits between attempts to register. They are cut short when another kubelet
// begins, and by nothing else.
const (
	firstRetry = 20 * time.Millisecond
	lastRetry  = 800 * time.Millisecond
	// absentRetry is for where there is no kubelet, which the folder tells anyway.
	absentRetry = 5 * time.Second
	// Patience until a kubelet that has registered us asks for the devices.
	firstPatience = time.Second
	lastPatience  = 30 * time.Second
	// held is how long a registration lasts that was one: a kubelet that takes it
	// and hangs up is not asked again and again without end.
	held = time.Second
)

// backoff is how long a server waits for one kubelet, which is known by its socket.
type backoff struct{ retry, patience time.Duration }

func newBackoff() backoff { return backoff{retry: firstRetry, patience: firstPatience} }

// after returns how long to wait when an attempt has ended. lasted is how long it
// was registered; 0: not at all.
func (b *backoff) after(err error, lasted time.Duration) time.Duration {
	if errors.Is(err, errNotHeard) {
		b.patience = min(2*b.patience, lastPatience)
	} else {
		b.patience = firstPatience
	}
	switch {
	case errors.Is(err, errNoKubelet):
		return absentRetry
	case errors.Is(err, errWiped) && lasted > 0:
		b.retry = firstRetry
		return 0 // the kubelet is well: there is nothing to wait for
	case lasted >= held:
		b.retry = firstRetry
	}
	wait := b.retry
	b.retry = min(2*b.retry, lastRetry)
	return wait
}
