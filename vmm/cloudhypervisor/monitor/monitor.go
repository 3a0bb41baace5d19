// Package monitor is the agent's connection to a cloud-hypervisor that runs: status, pause
// and resume, events, counters and size.
package monitor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
)

const (
	// shortPatience is how long a call may take that the VMM carries out at once. It
	// has one thread for the calls of all clients, so those that come while the shim
	// has it write a snapshot wait.
	shortPatience = 10 * time.Second
	// bootPatience is for those that make a VM: reading a kernel, mapping RAM.
	bootPatience = 2 * time.Minute
)

// monitor implements vmm.Monitor and vmm.Sampler: calls go to the VMM, on a connection
// each, and events come from the shim's driver.
type monitor struct {
	client *chapi.Client
	conn   net.Conn // to wire.EventsSocket
	events chan vmm.Event
	ctx    context.Context // until Close
	cancel context.CancelFunc
	done   chan struct{} // closed when the pump has ended

	// panicked is the guest: the VMM can't be asked for it.
	panicked atomic.Bool
	// bootTried is whether the VM is more than created, see wire.BootTried.
	bootTried atomic.Bool
}

// Connect connects to the shim's driver for events, and has it say what was before.
// The VMM itself is not asked: it may be busy with a snapshot.
// While it reads large messages the memory that they take, in bytes, is in room; nil: the
// VM is trusted, or alone.
func Connect(ctx context.Context, dial vmm.Dialer, room *semaphore.Weighted) (vmm.Monitor, error) {
	conn, err := dial(ctx, wire.EventsSocket)
	if err != nil {
		return nil, fmt.Errorf("connecting to cloud-hypervisor's events %s: %w", wire.EventsSocket, err)
	}
	frames := wire.NewFrames(conn)
	first, err := firstFrame(ctx, conn, frames)
	if err != nil {
		conn.Close()
		return nil, err
	}
	m := &monitor{
		client: chapi.New(func(ctx context.Context) (net.Conn, error) { return dial(ctx, wire.APISocket) }, replies(room)...),
		conn:   conn, events: make(chan vmm.Event), done: make(chan struct{}),
	}
	m.panicked.Store(first.Panicked)
	m.bootTried.Store(first.BootTried)
	m.ctx, m.cancel = context.WithCancel(context.Background())
	go m.pump(frames, rate.NewLimiter(frameRate, frameBurst))
	return m, nil
}

// maxPodReply bounds a reply from a pod, in bytes: a VM there has few devices.
const maxPodReply = 512 << 10

// replies says what is read of them.
func replies(room *semaphore.Weighted) []chapi.Option {
	if room == nil {
		return nil
	}
	return []chapi.Option{chapi.WithRoom(room), chapi.WithMaxReply(maxPodReply)}
}

// firstFrame is what the driver says at once.
func firstFrame(ctx context.Context, conn net.Conn, frames *wire.Frames) (*wire.State, error) {
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	first, err := frames.Next()
	if !stop() {
		return nil, fmt.Errorf("%s says nothing: %w", wire.EventsSocket, context.Cause(ctx))
	}
	if err == nil && first.State == nil {
		err = fmt.Errorf("%s: it begins with an event: want a state", wire.EventsSocket)
	}
	return first.State, err
}

// Close ends the connections; the VM is not touched.
func (m *monitor) Close() error {
	m.cancel()
	err := m.conn.Close()
	<-m.done
	return err
}

// busy says what it means that a call took too long.
func busy(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, chapi.ErrBusy) {
		return fmt.Errorf("cloud-hypervisor carries out one call after the other, and is busy, with saving the VM for example: try again later: %w", err)
	}
	return err
}

// short makes a call that the VMM carries out at once.
func (m *monitor) short(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, shortPatience)
	defer cancel()
	return busy(call(ctx))
}

// long makes one that makes a VM.
func (m *monitor) long(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, bootPatience)
	defer cancel()
	return busy(call(ctx))
}

func (m *monitor) info(ctx context.Context) (info chapi.Info, err error) {
	err = m.short(ctx, func(ctx context.Context) (err error) {
		info, err = m.client.Info(ctx)
		return err
	})
	return info, err
}

// maxState bounds what is kept of a state's name, in bytes.
const maxState = 40

// Status asks what state the VM is in. One that was only created is as good as paused:
// Resume boots it. So is one that is off since a boot or a reset failed, but for that.
func (m *monitor) Status(ctx context.Context) (vmm.Status, error) {
	info, err := m.info(ctx)
	if err != nil {
		return vmm.Status{}, err
	}
	detail := string(info.State[:min(len(info.State), maxState)])
	status := vmm.Status{Running: info.State == chapi.StateRunning, Panicked: m.panicked.Load(), Detail: detail}
	if info.State == chapi.StatePaused {
		status.Asked = true
	}
	return status, nil
}

// Pause stops the vCPUs. Pausing a VM that is paused changes nothing.
func (m *monitor) Pause(ctx context.Context) error {
	info, err := m.info(ctx)
	if err != nil || info.State != chapi.StateRunning {
		return err
	}
	return m.short(ctx, m.client.Pause)
}

// Resume lets the vCPUs run, and boots a VM that was only created. Resuming a VM that
// runs changes nothing.
func (m *monitor) Resume(ctx context.Context) error {
	info, err := m.info(ctx)
	switch {
	case err != nil || info.State == chapi.StateRunning:
		return err
	case info.State == chapi.StateCreated:
		return m.boot(ctx)
	case info.State == chapi.StatePaused:
		return m.short(ctx, m.client.Resume)
	}
	return fmt.Errorf("can't resume: cloud-hypervisor has the VM in state %.40q: stop or kill it, and start it again", info.State)
}

// boot boots a VM that never was.
func (m *monitor) boot(ctx context.Context) error {
	if m.bootTried.Load() {
		return m.off()
	}
	err := m.long(ctx, m.client.Boot)
	if err != nil && !errors.Is(err, chapi.ErrNotSent) {
		m.bootTried.Store(true) // the event may be on its way
	}
	return err
}

func (m *monitor) off() error {
	return errors.New("the VM is off since it could not be booted or reset, and cloud-hypervisor may have forgotten some of its devices: kill it and start it again")
}

// Reset is the reset button: the guest starts again, without being asked. One that is
// paused stays so: it is stopped again when it has begun to run.
func (m *monitor) Reset(ctx context.Context) error {
	info, err := m.info(ctx)
	switch {
	case err != nil:
		return err
	case info.State == chapi.StateCreated && m.bootTried.Load():
		return m.off()
	case info.State == chapi.StateCreated:
		return nil // it has not begun
	}
	if err := m.long(ctx, m.client.Reboot); err != nil {
		return fmt.Errorf("%w (if it is off now: kill it and start it again)", err)
	}
	if info.State == chapi.StatePaused {
		return m.short(ctx, m.client.Pause)
	}
	return nil
}

// SetGuestTime is not available. From v53 on the VMM itself advances the guest's clock
// when it restores a VM.
func (m *monitor) SetGuestTime(context.Context, time.Time) error {
	return fmt.Errorf("%w: cloud-hypervisor has no channel to one", vmm.ErrNoGuestAgent)
}
