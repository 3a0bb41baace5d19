package place

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"

	"github.com/vmlet/vmlet/agent/undo"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/faultpoint"
	"github.com/vmlet/vmlet/shim"
	"golang.org/x/sync/errgroup"
)

// Acquire makes what the VMM needs, the slow things side by side.
func (h OnNode) Acquire(ctx context.Context, c *Choice) (*Acquired, error) {
	a := &acquisition{OnNode: h, choice: c, log: h.Log.With("vm", h.name, "id", c.ID)}
	if err := a.run(ctx); err != nil {
		closeFiles(a.files)
		if back := a.undo.Run(ctx); back != nil {
			a.log.Error("failed to release the host resources of a start", "error", back)
		}
		return nil, err
	}
	return &Acquired{Shim: a.shim, PID: a.pid, Files: a.files, Undo: func(ctx context.Context, _ error) error { return a.undo.Run(ctx) }}, nil
}

// acquisition is one Acquire.
type acquisition struct {
	OnNode
	choice *Choice
	log    *slog.Logger

	undo  undo.Stack
	shim  Shim
	pid   int
	files []*os.File // taps
}

func (a *acquisition) run(ctx context.Context) error {
	// The shim wants it at once; a VM that is only now restored does not have it yet.
	if err := a.Store.MakeStateDir(a.name); err != nil {
		return fmt.Errorf("making the VM's folder: %w", err)
	}
	faultpoint.Reach("agent.launch.prepared")
	if err := a.Reclaim(ctx); err != nil {
		return contract.Errorf("%s: %w", contract.ThisVM(a.name), err)
	}
	if err := a.Store.MakeRunDir(a.name); err != nil {
		return fmt.Errorf("making the VM's run folder: %w", err)
	}
	faultpoint.Reach("agent.launch.folder-made")
	lease := a.choice.Lease
	lease.Device = a.choice.Device
	lease.Cgroup = a.Host.PlanCgroup(a.name, a.choice.Spec.GetStopGracePeriod().AsDuration())
	if err := lease.Write(a.RunDir()); err != nil {
		return errors.Join(err, a.Store.RemoveRunDir(a.name))
	}
	// All that follows is in the lease.
	a.undo.Push("take back what the VM has of the host", func(ctx context.Context) error {
		ctx, cancel := lease.Ending(ctx)
		defer cancel()
		return a.GiveBack(ctx, lease)
	})
	faultpoint.Reach("agent.launch.leased")
	if err := a.noteGranted(a.choice); err != nil {
		return err
	}
	err := a.sideBySide(ctx)
	if a.shim != nil {
		a.undo.Push("end the shim", a.endShim)
	}
	return err
}

// sideBySide makes the cgroup, gives access to devices, opens taps and starts the shim.
func (a *acquisition) sideBySide(ctx context.Context) error {
	lease := a.choice.Lease
	var group errgroup.Group
	var cgroup bool
	cgroupTried := make(chan struct{})
	group.Go(func() error {
		defer close(cgroupTried)
		err := a.Host.MakeCgroup(lease.Cgroup)
		cgroup = err == nil
		return err
	})
	within := func(start func(*syscall.SysProcAttr) (int, error)) error {
		if <-cgroupTried; !cgroup {
			_, err := start(new(syscall.SysProcAttr)) // who tried to make it says why
			return err
		}
		joined, err := a.Host.StartInCgroup(lease.Cgroup, start)
		if err == nil && !joined && len(lease.Cgroup.Paths) > 0 {
			lease.Outside = true
			err = lease.Write(a.RunDir())
		}
		return err
	}
	for _, device := range lease.devices() {
		group.Go(func() error {
			_, err := a.Host.GrantDevice(device, lease.UID)
			return err
		})
	}
	group.Go(a.openTaps)
	group.Go(func() (err error) {
		a.shim, a.pid, err = a.startShim(ctx, within)
		faultpoint.Reach("agent.launch.shim-started")
		return err
	})
	return group.Wait()
}

func (a *acquisition) startShim(ctx context.Context, within func(start func(*syscall.SysProcAttr) (int, error)) error) (Shim, int, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, ShimPatience, fmt.Errorf("the shim did not answer within %v", ShimPatience))
	defer cancel()
	return a.Shims.Start(ctx, shim.StartOptions{
		Binary:   a.Shim,
		RunDir:   a.RunDir(),
		StateDir: a.StateDir(),
		RunID:    a.choice.Lease.RunID,
		Grace:    a.choice.Spec.GetStopGracePeriod().AsDuration(),
		Verbose:  a.log.Enabled(ctx, slog.LevelDebug),
		Within:   within,
	})
}

// openTaps opens them in the order in which Descriptors has numbered them.
func (a *acquisition) openTaps() error {
	for i, n := range a.choice.Spec.GetNetworks() {
		if n.GetTap() == nil {
			continue
		}
		f, err := a.OpenTap(n, a.choice.Lease, fmt.Sprintf("networks[%d]", i))
		if err != nil {
			return err
		}
		a.files = append(a.files, f)
	}
	return nil
}

// endShim ends the shim, whatever it has launched, and waits until it is gone:
// only then can what it used be removed.
func (a *acquisition) endShim(ctx context.Context) error {
	ctx, cancel := a.choice.Lease.Ending(ctx)
	defer cancel()
	process, err := RunningShim(a.Process())
	if process != nil {
		defer process.Close()
	}
	_, errKill := a.shim.Kill(ctx)
	errRelease := a.shim.Release(ctx, nil)
	defer a.shim.Close()
	if process != nil { // else it has ended already
		err = process.Wait(ctx)
	}
	if err != nil {
		return fmt.Errorf("%w (kill: %v; release: %v)", err, errKill, errRelease)
	}
	return nil
}

// Request is the plan alone.
func (OnNode) Request(c *Choice) (shim.Launch, error) { return shim.Launch{Plan: c.Plan}, nil }

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
