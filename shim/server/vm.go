package server

import (
	"encoding/json"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim/dedicated"
	"github.com/vmlet/vmlet/shim/internal/console"
	"github.com/vmlet/vmlet/shim/internal/display"
	"github.com/vmlet/vmlet/shim/server/control"
	"github.com/vmlet/vmlet/shim/server/leases"
	"github.com/vmlet/vmlet/shim/server/undo"
)

// vm is a VMM that was launched, with all that belongs to it.
type vm struct {
	plan *plan.Plan
	// engine is the VMM; before one is launched it is nil. A renewal puts another in its place.
	engine atomic.Pointer[engine]
	// gone is closed when the VMM has ended, and no other has taken its place.
	gone    chan struct{}
	console *console.Console
	display display.Display
	ram     *os.File // nil: private to the VMM
	freeRAM func() error
	disks   []watchedDisk
	// output is the log of what the VMM says.
	output io.Writer
	// placed are the CPUs that the VMM's threads have to themselves.
	placed dedicated.Placement
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
	ended bool // nothing can be begun with it any more
	// handing is the renewal that has stopped the guest: it decides which VMM has it. Nil: none.
	handing   *operation
	killed    bool
	graceOver bool
	saved     *savedIn
	bereft    error // how a companion ended that the VMM can't do without
	stopping  *stopping
	plugs     plugs
	kept      []keptFile
	renewals  int
	freeze    freeze
}

// engine is a VMM's process, and the connection to it; nil: there is none yet.
type engine struct {
	proc    *process
	machine control.Machine
}

// proc is the process of the VM's VMM; nil: none was started.
func (v *vm) proc() *process {
	if e := v.engine.Load(); e != nil {
		return e.proc
	}
	return nil
}

// machine is the connection to the VM's VMM. There is one once it was launched.
func (v *vm) machine() control.Machine {
	if e := v.engine.Load(); e != nil {
		return e.machine
	}
	return nil
}

// savedIn is the image that a VM ended in.
type savedIn struct{ directory, id string }

// stopping is a VM whose guest was asked to shut down.
type stopping struct {
	deadline time.Time
	timer    *time.Timer
}
