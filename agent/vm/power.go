package vm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/faultpoint"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/vmm"
)

// Power pauses and resumes guests, and ends VMs.
type Power struct {
	vms    *Registry
	tasks  *background
	guests *Guests
}

// Pause stops a guest that runs.
func (p *Power) Pause(ctx context.Context, name string) (*nodev1.VirtualMachine, error) {
	return p.vms.operate(ctx, name, lifecycle.Pause, func(ctx context.Context, m *VM, monitor vmm.Monitor) error {
		is, err := confirmed(ctx, m, lifecycle.Paused, monitor)
		if err != nil || is && !stoppedByDisk(m) {
			return err
		}
		// One that a disk's error has stopped stays so when the disk works again.
		if !is {
			if err := monitor.Pause(ctx); err != nil {
				return err
			}
		}
		return m.become(lifecycle.Paused, "paused", pause{reason: nodev1.PauseReason_PAUSE_REASON_USER}.note)
	})
}

// Resume lets a paused guest run. allowDamaged lets one go on whose memory is wrong.
func (p *Power) Resume(ctx context.Context, name string, allowDamaged bool) (*nodev1.VirtualMachine, error) {
	return p.vms.operate(ctx, name, lifecycle.Resume, func(ctx context.Context, m *VM, monitor vmm.Monitor) error {
		if is, err := confirmed(ctx, m, lifecycle.Running, monitor); is || err != nil {
			return err
		}
		whole := func() error {
			if l := m.running(); l != nil && !allowDamaged {
				return l.checkWhole(name)
			}
			return nil
		}
		if err := whole(); err != nil {
			return err
		}
		if err := goOn(ctx, m, monitor); err != nil {
			noteDisk(ctx, m, monitor)
			return err
		}
		// What is found from now on pauses it again, see stopDamaged.
		if err := whole(); err != nil {
			if errPause := monitor.Pause(ctx); errPause != nil {
				return errors.Join(err, errPause)
			}
			return err
		}
		if err := m.become(lifecycle.Running, ""); err != nil {
			return err
		}
		p.guests.SetGuestTime(m) // it has been paused, since before its save perhaps
		return nil
	})
}

// Reset has a guest begin again, as its reset button would.
func (p *Power) Reset(ctx context.Context, name string) (*nodev1.VirtualMachine, error) {
	return p.vms.operate(ctx, name, lifecycle.Reset, func(ctx context.Context, m *VM, monitor vmm.Monitor) error {
		err := monitor.Reset(ctx)
		if err != nil {
			err = errors.Join(err, p.standsStill(m, monitor, err))
		}
		return err
	})
}

// standsStill notes that a guest runs no more, after what went wrong with it: a VMM may
// have ended it, and not have got it to begin again.
func (p *Power) standsStill(m *VM, monitor vmm.Monitor, why error) error {
	ctx, cancel := context.WithTimeout(p.tasks.ctx, statusPatience)
	defer cancel()
	status, err := monitor.Status(ctx)
	if err != nil || status.Running || m.State() != lifecycle.Running {
		return nil // what is known stays; the watch notes an end
	}
	return m.become(lifecycle.Paused, fmt.Sprintf("it doesn't run since a reset failed: %v", why))
}

// Stop presses the power button, and kills the VM after its grace period;
// killed says that it came to that.
func (p *Power) Stop(ctx context.Context, name string, grace *time.Duration) (vm *nodev1.VirtualMachine, killed bool, err error) {
	m, err := p.vms.Get(ctx, name)
	if err != nil {
		return nil, false, err
	}
	if grace != nil && *grace < 0 {
		return nil, false, fault.Invalid("grace_period_ms", "%d is negative", grace.Milliseconds())
	}
	verdict, done, err := m.begin(ctx, lifecycle.Stop)
	if err != nil {
		return nil, false, err
	}
	if verdict == lifecycle.Already {
		return m.Snapshot(), false, nil
	}
	defer done()
	l := m.running()
	if l == nil {
		return m.Snapshot(), false, nil // it has ended by itself
	}
	if m.State() == lifecycle.Paused { // it has to run to shut down
		if err := l.checkWhole(name); err != nil {
			return nil, false, err
		}
	}
	wait := m.Snapshot().GetStatus().GetEffectiveSpec().GetStopGracePeriod().AsDuration()
	if grace != nil {
		wait = *grace
	}
	before := m.State()
	m.note(lifecycle.Stopping, fmt.Sprintf("asked to shut down within %v", wait))
	faultpoint.Reach("agent.stop.announced")
	if before == lifecycle.Paused { // a paused guest can't shut down
		if err := wake(ctx, m, l); err != nil {
			m.note(before, "")
			return nil, false, err
		}
	}
	if err := press(ctx, m, l, before, wait); err != nil {
		return nil, false, err
	}
	faultpoint.Reach("agent.stop.over")
	exit := l.exit
	return m.Snapshot(), exit != nil && exit.Reason == shim.ReasonKilled, nil
}

// wake lets a paused guest run so that it can shut down. An error means that it must
// not; other failures show when it doesn't shut down.
func wake(ctx context.Context, m *VM, l *live) error {
	monitor, err := l.connected()
	if err == nil {
		err = goOn(ctx, m, monitor)
	}
	if changedDisk(err) {
		return fmt.Errorf("stop: %w", err)
	}
	if err != nil {
		m.log.Warn("failed to resume a paused guest so that it can shut down", "error", err)
	}
	return nil
}

// press presses the power button and waits until the VM has ended.
func press(ctx context.Context, m *VM, l *live, before lifecycle.State, grace time.Duration) error {
	_, err := l.shim.Stop(ctx, grace)
	if err := over(ctx, l, err); err != nil {
		if ctx.Err() == nil {
			m.note(before, "")
		} // else the shim goes on stopping, and so does the state
		return contract.Errorf("stopping %s: %w", contract.ThisVM(m.name), err)
	}
	return nil
}

// Kill ends a VM at once, whatever is being done with it.
func (p *Power) Kill(ctx context.Context, name string) (*nodev1.VirtualMachine, error) {
	m, err := p.vms.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	verdict, err := m.check(lifecycle.Kill)
	if err != nil || verdict == lifecycle.Already {
		return m.Snapshot(), err
	}
	// A start or a restore under way takes itself back; all else is ended
	// under the feet of anyone who is at it.
	m.mu.Lock()
	interrupt, l, lost := m.interrupt, m.live, m.lost
	m.mu.Unlock()
	if interrupt != nil {
		interrupt(errKilled)
	}
	if lost != nil {
		return killLost(ctx, m, lost)
	}
	if l == nil {
		if l, err = settled(ctx, m); l == nil {
			return m.Snapshot(), err
		}
	}
	faultpoint.Reach("agent.kill.begun")
	if err := killLive(ctx, m, l); err != nil {
		return nil, contract.Errorf("killing %s: %w", contract.ThisVM(name), err)
	}
	faultpoint.Reach("agent.kill.over")
	return m.Snapshot(), nil
}

// killPatience is how long a shim may take to kill its VMM, beside the time that the
// guest's memory takes; see PatienceFor. It has nothing else to wait for.
const killPatience = 20 * time.Second

// killLive has a shim kill its VMM, and kills the shim if it does not answer: its VMM
// dies with it.
func killLive(ctx context.Context, m *VM, l *live) error {
	patient, cancel := context.WithTimeout(ctx, place.PatienceFor(killPatience, l.lease.MemorySize))
	defer cancel()
	_, err := l.shim.Kill(patient)
	err = over(patient, l, err)
	if err == nil || ctx.Err() != nil || patient.Err() == nil {
		return err
	}
	process, errProcess := place.RunningShim(m.place.Process())
	if errProcess != nil {
		return errors.Join(err, errProcess)
	}
	if process == nil {
		return over(ctx, l, nil) // it has ended just now
	}
	defer process.Close()
	m.log.Warn("the shim does not answer: killing it", "pid", process.PID(), "error", err)
	if err := process.Kill(); err != nil {
		return err
	}
	if err := over(ctx, l, nil); err != nil {
		return err
	}
	if m.State() == lifecycle.Crashed {
		m.note(lifecycle.Stopped, killedSilent, wasKilled)
	}
	return nil
}

// settled waits until nothing is under way and returns what runs then.
func settled(ctx context.Context, m *VM) (*live, error) {
	select {
	case m.slot <- struct{}{}:
		defer func() { <-m.slot }()
		return m.running(), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
