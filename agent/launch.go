package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/vmlet/vmlet/agent/host"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/undo"
	vmletv1 "github.com/vmlet/vmlet/proto/vmlet/v1"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/shim"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// shimPatience is how long a shim that was just started may take to say hello:
// it needs milliseconds, on a machine that swaps a second or two.
const shimPatience = 30 * time.Second

// launch starts a VMM, for a boot or a restore, and takes everything back if
// any step fails.
type launch struct {
	agent *agent
	m     *machine
	// spec as the user wrote it, or as the image has it.
	spec *vmletv1.VirtualMachineSpec
	// image that the VM goes on from; nil: it boots.
	image    *vmm.Image
	paused   bool
	progress func(shim.Progress)
	// unrecorded: there is no record of the VM on disk yet.
	unrecorded bool

	choice  choice
	undo    undo.Stack
	shim    Shim
	pid     int
	vmmPID  int
	files   []*os.File // what goes with the plan: taps
	monitor vmm.Monitor
}

// run carries the launch out. The VM's slot must be taken. The record is the
// caller's, but for the state, which is back to what it was after an error.
func (l *launch) run(ctx context.Context, message string) error {
	before := proto.CloneOf(l.m.snapshot().GetStatus())
	if err := l.choose(ctx); err != nil {
		return err
	}
	defer l.closeFiles()
	err := l.steps(ctx, message)
	if err == nil {
		l.undo.Forget()
		return nil
	}
	if back := l.undo.Run(ctx); back != nil {
		l.m.log.Error("taking back a start that failed", "error", back)
	}
	l.m.note(before.GetState(), fmt.Sprintf("%s failed: %v", l.word(), err), func(vm *vmletv1.VirtualMachine) {
		state, message := vm.Status.State, vm.Status.Message
		vm.Status = before
		vm.Status.State, vm.Status.Message = state, message
	})
	return err
}

// word is what is being done.
func (l *launch) word() string {
	if l.image != nil {
		return "restore"
	}
	return "start"
}

func (l *launch) steps(ctx context.Context, message string) error {
	l.undo.Push("release the user id", func(context.Context) error {
		l.agent.host.ReleaseUser(l.choice.lease.UID, l.m.name)
		return nil
	})
	if err := l.announce(); err != nil {
		return err
	}
	// The shim wants the folder at once, which a VM that is only now restored
	// does not have yet.
	if err := l.agent.store.MakeStateDir(l.m.name); err != nil {
		return fmt.Errorf("making the VM's folder: %w", err)
	}
	// Written down while the VMM comes up: the disk is slower than that.
	kept := make(chan error, 1)
	go func() { kept <- l.m.persist() }()
	err := l.acquire(ctx)
	if err == nil && l.unrecorded {
		// Without any record an agent that comes back could not adopt it.
		err = <-kept
		kept <- err
	}
	if err == nil {
		err = l.start(ctx)
	}
	if errKept := <-kept; errKept != nil && (err == nil || err == errKept) {
		err = fmt.Errorf("keeping the VM's record: %w", errKept)
	}
	if err != nil {
		return err
	}
	return l.settle(ctx, message)
}

// announce puts the VM into the state of being started.
func (l *launch) announce() error {
	state, message := lifecycle.Starting, "starting: "+l.choice.reason
	if l.image != nil {
		state, message = lifecycle.Restoring, "restoring from "+l.image.Directory
	}
	return l.m.change(func(vm *vmletv1.VirtualMachine) {
		l.choice.describe(vm)
		vm.Status.State, vm.Status.Message = state, message
		vm.Status.BootId = l.agent.bootID
	})
}

// acquire makes what the VMM needs, the slow things side by side.
func (l *launch) acquire(ctx context.Context) error {
	name, lease := l.m.name, l.choice.lease
	st, h := l.agent.store, l.agent.host
	if err := st.MakeRunDir(name); err != nil {
		return fmt.Errorf("making the VM's run folder: %w", err)
	}
	l.undo.Push("remove the run folder", func(context.Context) error { return st.RemoveRunDir(name) })
	if err := lease.write(st.RunDir(name)); err != nil {
		return err
	}
	l.undo.Push("remove the RAM file", func(context.Context) error { return h.RemoveMemory(lease.Memory) })

	var group errgroup.Group
	var cgroup, device, shimUp bool
	group.Go(func() (err error) {
		err = h.MakeCgroup(lease.Cgroup)
		cgroup = err == nil
		return err
	})
	group.Go(func() (err error) {
		if lease.Device != "" {
			_, err = h.GrantDevice(lease.Device, lease.UID)
			device = err == nil
		}
		return err
	})
	group.Go(func() error { return l.choice.writeFiles(st.StateDir(name)) })
	group.Go(l.openTaps)
	group.Go(func() (err error) {
		l.shim, l.pid, err = l.startShim(ctx)
		shimUp = err == nil
		return err
	})
	err := group.Wait()
	if cgroup {
		l.undo.Push("remove the cgroup", func(context.Context) error { return h.RemoveCgroup(lease.Cgroup) })
	}
	if device {
		l.undo.Push("take back the device", func(context.Context) error { return h.RevokeDevice(lease.Device, lease.UID) })
	}
	if shimUp {
		l.undo.Push("end the shim", l.endShim)
	}
	return err
}

func (l *launch) startShim(ctx context.Context) (Shim, int, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, shimPatience, fmt.Errorf("the shim did not answer within %v", shimPatience))
	defer cancel()
	return l.agent.shims.Start(ctx, shim.StartOptions{
		Binary:   l.agent.cfg.Shim,
		RunDir:   l.agent.store.RunDir(l.m.name),
		StateDir: l.agent.store.StateDir(l.m.name),
		RunID:    l.choice.lease.RunID,
		Grace:    l.choice.spec.GetStopGracePeriod().AsDuration(),
		Verbose:  l.m.log.Enabled(ctx, slog.LevelDebug),
	})
}

// endShim ends a shim, whatever it has launched, and waits until it is gone:
// only then can what it used be removed.
func (l *launch) endShim(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, endPatience)
	defer cancel()
	process, err := l.agent.shims.Process(l.agent.store.RunDir(l.m.name))
	if err == nil {
		defer process.Close()
	}
	_, errKill := l.shim.Kill(ctx)
	errRelease := l.shim.Release(ctx, "")
	defer l.shim.Close()
	if process == nil {
		return nil // it has ended already
	}
	err = process.Wait(ctx)
	if err != nil {
		return fmt.Errorf("%w (kill: %v; release: %v)", err, errKill, errRelease)
	}
	return nil
}

func (l *launch) openTaps() error {
	for i, n := range l.choice.spec.GetNetworks() {
		tap := n.GetTap()
		if tap == nil {
			continue
		}
		f, name, err := l.agent.host.OpenTap(host.TapRequest{Device: tap.GetDevice(), Bridge: tap.GetBridge(), MAC: n.GetMac()})
		if err != nil {
			return failf(codes.FailedPrecondition, "networks[%d].tap: %w", i, err)
		}
		l.m.log.Debug("tap", "network", n.GetName(), "device", name)
		l.files = append(l.files, f)
	}
	return nil
}

// closeFiles closes the agent's own descriptors: the VMM has its own by then.
func (l *launch) closeFiles() {
	for _, f := range l.files {
		f.Close()
	}
}

// start has the shim start the VMM, and connects to that.
func (l *launch) start(ctx context.Context) error {
	if err := l.agent.host.JoinCgroup(l.choice.lease.Cgroup, l.pid); err != nil {
		return err
	}
	launched, err := l.shim.Launch(ctx, shim.Launch{Plan: l.choice.plan}, l.files, l.progress)
	if err != nil {
		return fmt.Errorf("vm %s: %w", l.m.name, err)
	}
	l.vmmPID = launched.VMMPID
	dial := dialer(l.agent.shims, l.agent.store.RunDir(l.m.name))
	monitor, err := l.choice.vmm.Connect(ctx, dial)
	if err != nil {
		return failf(codes.Unavailable, "vm %s: the VMM's monitor: %w", l.m.name, err)
	}
	l.undo.Push("close the monitor", func(context.Context) error { return monitor.Close() })
	l.monitor = monitor
	return nil
}

// settle makes the VM a running one.
func (l *launch) settle(ctx context.Context, message string) error {
	status, err := l.monitor.Status(ctx)
	if err != nil {
		return failf(codes.Unavailable, "vm %s: the VMM's status: %w", l.m.name, err)
	}
	state := lifecycle.Running
	if !status.Running {
		state = lifecycle.Paused
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	dial := dialer(l.agent.shims, l.agent.store.RunDir(l.m.name))
	alive := newLive(l.choice.lease, l.shim, l.choice.vmm, dial, l.monitor)
	l.m.mu.Lock()
	l.m.live = alive
	l.m.mu.Unlock()
	l.m.note(state, message, func(vm *vmletv1.VirtualMachine) {
		vm.Status.Process = &vmletv1.ProcessStatus{
			ShimPid: int64(l.pid), VmmPid: int64(l.vmmPID), Uid: l.choice.lease.UID, Cgroup: l.choice.lease.Cgroup.Path(),
		}
		vm.Status.Image = nil
		vm.Status.EndedAt = nil
		vm.Status.Guest = &vmletv1.GuestStatus{Panicked: status.Panicked}
	})
	l.agent.watch(l.m, alive)
	return nil
}
