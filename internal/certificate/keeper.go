// Package certificate keeps the certificate by which one of vmlet's programs is known to
// the others: it makes the key, asks for the certificate by a CertificateSigningRequest of
// Kubernetes, and asks again well before it ends. The key never leaves the process's memory.
//
// What is issued is a chain: the certificate, and then the CA certificates that the program
// trusts in the others. The program got them from the API server, over a connection that is
// authenticated. The package must not know who signs, or what a program is called. Start
// reading at [Keeper.Run].
package certificate

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
)

const (
	// retryFirst and retryMost bound the time between two attempts, before jitter.
	retryFirst = time.Second
	retryMost  = time.Minute
	// deniedRest is how long a program whose request was denied waits before the next one:
	// somebody has to change something first, and each request is an object.
	deniedRest = 10 * time.Minute
	// longestSleep makes a renewal follow the wall clock, which may be set.
	longestSleep = time.Hour
)

// Request is what a certificate is to say.
type Request struct {
	// Signer is a signer's name, as in CertificateSigningRequests.
	Signer string
	// CommonName may be empty.
	CommonName string
	DNSNames   []string
	Usages     []certificatesv1.KeyUsage
}

// Options of a Keeper. All fields are required.
type Options struct {
	// API is a client of certificates.k8s.io/v1. The program needs the right to create,
	// get and watch certificatesigningrequests.
	API     rest.Interface
	Request Request
	// NamePrefix begins the names of the requests: "vmlet-agent-".
	NamePrefix string
	Log        *slog.Logger
}

// Keeper has a program's certificate while Run runs. Its methods may be called
// concurrently.
type Keeper struct {
	options Options
	ready   chan struct{}

	mu      sync.Mutex
	current *issued // nil: none yet
	renewAt time.Time
	reason  error // why there is no newer one; nil: none is due
	warned  bool
}

// New makes a Keeper that has no certificate yet.
func New(o Options) *Keeper {
	return &Keeper{options: o, ready: make(chan struct{}), reason: errors.New("no certificate was requested yet")}
}

// Ready is closed when there is a certificate for the first time.
func (k *Keeper) Ready() <-chan struct{} { return k.ready }

// Err says why there is no certificate, or why the one there is was not renewed though that
// has been due for a while (a twelfth of its lifetime); nil if all is well.
func (k *Keeper) Err() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.current == nil:
		return k.reason
	case time.Now().After(k.current.leaf.NotAfter):
		return fmt.Errorf("the certificate has expired: %w", k.reason)
	case k.reason != nil && time.Since(k.renewAt) > k.current.lifetime()/12:
		return fmt.Errorf("the certificate ends %s: %w", k.current.leaf.NotAfter.UTC().Format(time.RFC3339), k.reason)
	}
	return nil
}

// NotAfter is when the certificate ends; zero if there is none.
func (k *Keeper) NotAfter() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == nil {
		return time.Time{}
	}
	return k.current.leaf.NotAfter
}

// Run obtains certificates until ctx ends. An API server that is away, or a request that
// nobody decides, is waited for: the certificate there is stays in use.
func (k *Keeper) Run(ctx context.Context) {
	retry := newRetry()
	for ctx.Err() == nil {
		if due := k.untilRenewal(); due > 0 {
			sleep(ctx, min(due, longestSleep))
			continue
		}
		got, err := k.obtain(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			k.take(got)
			retry = newRetry()
		case errors.As(err, new(*refusedError)):
			k.failed(err)
			sleep(ctx, wait.Jitter(deniedRest, 0.5))
		default:
			k.failed(err)
			sleep(ctx, retry.Step())
		}
	}
}

func newRetry() *wait.Backoff {
	return &wait.Backoff{Duration: retryFirst, Factor: 2, Jitter: 0.5, Steps: 30, Cap: retryMost}
}

// untilRenewal is how long nothing is to be done; 0: a certificate is due.
func (k *Keeper) untilRenewal() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == nil {
		return 0
	}
	return max(0, time.Until(k.renewAt))
}

// obtain has one certificate issued, for a new key.
func (k *Keeper) obtain(ctx context.Context) (*issued, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	name, err := k.submit(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("creating a certificate signing request: %w", err)
	}
	k.options.Log.Info("certificate requested", "request", name, "signer", k.options.Request.Signer)
	k.waits(fmt.Errorf("certificate signing request %s is not decided yet: is vmlet-controller running?", name))
	chain, err := k.await(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("certificate signing request %s: %w", name, err)
	}
	got, err := parse(chain, key, k.options.Request, time.Now())
	if err != nil {
		return nil, fmt.Errorf("certificate signing request %s: what was issued is unusable: %w", name, err)
	}
	return got, nil
}

// take puts a certificate into use.
func (k *Keeper) take(got *issued) {
	k.mu.Lock()
	first := k.current == nil
	k.current, k.reason, k.warned = got, nil, false
	k.renewAt = renewal(got.leaf.NotBefore, got.leaf.NotAfter, mathrand.Float64())
	at := k.renewAt
	k.mu.Unlock()
	k.options.Log.Info("certificate issued", "until", got.leaf.NotAfter, "renewal", at)
	if first {
		close(k.ready)
	}
}

// renewal is at two thirds of a certificate's lifetime, or up to a fifteenth of it earlier:
// programs that were started together don't ask together for ever.
func renewal(from, until time.Time, random float64) time.Time {
	lifetime := until.Sub(from)
	return from.Add(lifetime*2/3 - time.Duration(random*float64(lifetime/15)))
}

// waits notes what the next certificate waits for, which is no failure.
func (k *Keeper) waits(reason error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.reason = reason
}

// failed notes why there is no new certificate, and logs that once until there is one.
func (k *Keeper) failed(err error) {
	k.mu.Lock()
	said := k.warned
	k.reason, k.warned = err, true
	k.mu.Unlock()
	if !said {
		k.options.Log.Warn("no certificate could be obtained; it is tried again", "error", err)
	}
}

// sleep returns after a time, or when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
