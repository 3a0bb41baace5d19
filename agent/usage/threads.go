package usage

import (
	"sync"
	"time"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/hypervisor/housekeeping"
	"github.com/vmlet/vmlet/sysfs"
)

const (
	// threadsAge is how long a VMM's threads are not looked for again: virtual CPUs
	// stay, and to read all threads' names is half of a scrape.
	threadsAge = 30 * time.Second
	// threadsUnused is how long they are kept of a VMM that nobody asks for.
	threadsUnused = 10 * time.Minute
)

// Threads remembers which threads are virtual CPUs. It may be used concurrently.
type Threads struct {
	mu    sync.Mutex
	known map[threadsOf]knownThreads
}

type threadsOf struct {
	pid, shim int
	pattern   string
}

type knownThreads struct {
	vcpus        []housekeeping.Thread
	looked, used time.Time
}

// NewThreads remembers nothing yet.
func NewThreads() *Threads { return &Threads{known: make(map[threadsOf]knownThreads)} }

// vcpus are the virtual CPUs' threads of a VMM, by their number.
func (t *Threads) vcpus(roots sysfs.Roots, s Subject, now time.Time) []housekeeping.Thread {
	key := threadsOf{s.PID, s.Shim, s.Threads.VCPU}
	t.mu.Lock()
	k, there := t.known[key]
	t.mu.Unlock()
	if !there || now.Sub(k.looked) >= threadsAge {
		// The kernel's timer threads are of no interest, and looking for them is expensive.
		found, err := housekeeping.Find(roots, s.PID, hypervisor.ThreadNames{VCPU: s.Threads.VCPU})
		if err != nil {
			return nil
		}
		k = knownThreads{vcpus: found.VCPUs(), looked: now}
	}
	k.used = now
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known[key] = k
	return k.vcpus
}

// forget has those of one VMM looked for again.
func (t *Threads) forget(s Subject) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.known, threadsOf{s.PID, s.Shim, s.Threads.VCPU})
}

// sweep forgets those that nobody has asked for.
func (t *Threads) sweep(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, k := range t.known {
		if now.Sub(k.used) >= threadsUnused {
			delete(t.known, key)
		}
	}
}
