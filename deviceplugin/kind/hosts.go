package kind

import (
	"sync"
	"time"

	"github.com/vmlet/vmlet/sysfs"
)

// Hosts reads the machine for several kinds. Those that ask while it is read
// share the next reading: one change, which all hear of, costs two at most.
type Hosts struct {
	read func() *sysfs.Host

	mu    sync.Mutex
	begun time.Time
	host  *sysfs.Host
}

// NewHosts reads the machine below these roots.
func NewHosts(roots sysfs.Roots) *Hosts {
	return &Hosts{read: func() *sysfs.Host { return sysfs.Read(roots) }}
}

// Read returns the machine as it was at the time of the call, or later.
func (h *Hosts) Read() *sysfs.Host {
	asked := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.host == nil || !h.begun.After(asked) {
		h.begun = time.Now()
		h.host = h.read()
	}
	return h.host
}
