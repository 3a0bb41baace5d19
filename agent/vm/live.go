package vm

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/vmm"
	"google.golang.org/grpc/codes"
)

// live is a VM's VMM while it runs.
type live struct {
	lease *place.Lease
	shim  place.Shim
	vmm   vmm.VMM
	dial  vmm.Dialer
	// over is closed when the VMM has ended and all of the lease is given back.
	over chan struct{}
	exit *shim.Exit // set before over is closed

	// renewing: another VMM is taking the place of the one that runs. What either says of the guest's state is not the VM's.
	renewing atomic.Bool

	mu      sync.Mutex
	monitor vmm.Monitor // nil: not connected
	damage  error       // what is wrong with the image that memory is mapped from
}

func newLive(l *place.Lease, s place.Shim, v vmm.VMM, dial vmm.Dialer, monitor vmm.Monitor) *live {
	return &live{lease: l, shim: s, vmm: v, dial: dial, monitor: monitor, over: make(chan struct{})}
}

func (l *live) setDamaged(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.damage = why
}

func (l *live) damaged() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.damage
}

// checkWhole refuses to let a guest run that would read wrong memory, and may write what
// comes of it to its disks.
func (l *live) checkWhole(vm string) error {
	why := l.damaged()
	if why == nil {
		return nil
	}
	return fault.Errorf(codes.DataLoss, "%s is paused: the image backing its memory is damaged (%w): kill it, and restore a whole image or boot it afresh%s",
		contract.ThisVM(vm), why, contract.Advice("vmlet start --cold; vmlet resume --allow-damaged lets it go on with wrong memory, and it can then be stopped"))
}

// connected returns the monitor. The watch connects it again when it is lost.
func (l *live) connected() (vmm.Monitor, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.monitor == nil {
		return nil, fault.Errorf(codes.Unavailable, "the VMM's monitor does not answer: try again, or kill the VM")
	}
	return l.monitor, nil
}

// swap replaces the monitor and closes the one that was there.
func (l *live) swap(m vmm.Monitor) {
	l.mu.Lock()
	old := l.monitor
	l.monitor = m
	l.mu.Unlock()
	if old != nil && old != m {
		old.Close()
	}
}

// dialer reaches the sockets of a run folder.
func dialer(s place.Shims, runDir string) vmm.Dialer {
	return func(ctx context.Context, name string) (net.Conn, error) { return s.DialSocket(ctx, runDir, name) }
}

// statusPatience is how long a VMM may take to say whether its guest runs.
const statusPatience = 10 * time.Second

const (
	// monitorPatience is how long a VMM may take to answer a new connection.
	monitorPatience = 10 * time.Second
	// maxEventName and maxEventData bound, in bytes, what is kept of a VMM's
	// event: QEMU's have less, and one of a VMM that was taken over may have
	// as much as a message of its monitor.
	maxEventName = 64
	maxEventData = 4 << 10
)
