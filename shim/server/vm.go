package server

import (
	"encoding/json"
	"os"
	"sync"
	"time"

	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim/internal/console"
	"github.com/vmlet/vmlet/shim/internal/display"
	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/shim/server/leases"
	"github.com/vmlet/vmlet/shim/server/undo"
)

// vm is a VMM that was launched, with all that belongs to it.
type vm struct {
	plan    *plan.Plan
	proc    *process
	machine control.Machine
	console *console.Console
	display display.Display
	ram     *os.File // nil: private to the VMM
	freeRAM func() error
	disks   []watchedDisk
	// imageBytes of data in the image that private RAM is mapped from.
	imageBytes uint64
	keep       json.RawMessage // the agent's own
	// grace that the guest has after a signal; nil: the shim's.
	grace      *time.Duration
	undo       undo.Stack
	leases     leases.Set
	companions []*companion
	background sync.WaitGroup // what uses the image
	freezing   sync.Mutex     // held while its agent freezes or thaws
	verified   chan struct{}  // closed when the image was looked through; nil: RAM is from none

	// The rest is guarded by session.mu.
	ended     bool // nothing can be begun with it any more
	killed    bool
	graceOver bool
	saved     *savedIn
	bereft    error // how a companion ended that the VMM can't do without
	stopping  *stopping
	plugs     plugs
	freeze    freeze
}

// savedIn is the image that a VM ended in.
type savedIn struct{ directory, id string }

// stopping is a VM whose guest was asked to shut down.
type stopping struct {
	deadline time.Time
	timer    *time.Timer
}
