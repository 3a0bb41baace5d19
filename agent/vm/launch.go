package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/agent/undo"
	"github.com/vmlet/vmlet/cloudinit"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/faultpoint"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/vmm"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// Launcher starts VMMs.
type Launcher struct {
	vms        *Registry
	platform   *Platform
	guests     *Guests
	supervisor *supervisor
	shims      place.Shims
	// bootID is the machine's since it was booted.
	bootID string
	// stats count restores.
	stats imageCounter
}

// launch starts a VMM, for a boot or a restore, and takes everything back if
// any step fails.
type launch struct {
	*Launcher
	wanted
	progress func(shim.Progress)
	// unrecorded: there is no record of the VM on disk yet.
	unrecorded bool
	// once: nothing is taken back of a VMM that has gone on from the image.
	once bool

	choice  *choice
	undo    undo.Stack
	shim    place.Shim
	pid     int        // of the shim
	vmmPID  int        // as the shim says it
	files   []*os.File // what goes with the plan: taps, the seed
	monitor vmm.Monitor
	failure error // set before all is taken back
}

// Launch boots a VM that is taken, with what its placement has. A paused guest waits
// for Resume before its first instruction.
func (l *Launcher) Launch(ctx context.Context, m *VM, s *specv1.VirtualMachineSpec, paused bool) error {
	boot := &launch{Launcher: l, wanted: wanted{m: m, spec: s, paused: paused}}
	return boot.run(ctx, "")
}

// run carries the launch out. The VM's slot must be taken. The record is the
// caller's, but for the state, which is back to what it was after an error.
func (l *launch) run(ctx context.Context, message string) error {
	before := proto.CloneOf(l.m.Snapshot().GetStatus())
	var err error
	if l.choice, err = (&chooser{l.wanted, l.platform, l.vms}).choose(ctx); err != nil {
		return err
	}
	defer l.closeFiles()
	faultpoint.Reach("agent.launch.chosen")
	err = l.steps(ctx, message)
	if err == nil {
		l.undo.Forget()
		return nil
	}
	verb := l.word() + " failed"
	if l.once && l.vmmPID != 0 {
		l.undo.Forget()
		if l.monitor != nil {
			err = errors.Join(err, l.monitor.Close())
		}
		err, verb = &RunsError{err}, "the VM runs, and is taken up again"
	}
	l.failure = err
	if back := l.undo.Run(ctx); back != nil {
		l.m.log.Error("failed to undo a start that failed", "error", back)
	}
	faultpoint.Reach("agent.launch.taken-back")
	l.m.note(before.GetState(), fmt.Sprintf("%s: %v", verb, err), func(vm *nodev1.VirtualMachine) {
		state, message := vm.Status.State, vm.Status.Message
		vm.Status = before
		vm.Status.State, vm.Status.Message = state, message
		vm.Status.Faults = fault.Parts(err)
	})
	return err
}

// RunsError is what kept the agent from following a VM whose guest runs, and could not go on from its image again: it is to be
// adopted.
type RunsError struct{ Err error }

func (e *RunsError) Error() string { return e.Err.Error() }
func (e *RunsError) Unwrap() error { return e.Err }

// word is what is being done.
func (l *launch) word() string {
	if l.image != nil {
		return "restore"
	}
	return "start"
}

func (l *launch) steps(ctx context.Context, message string) error {
	l.undo.Push("give back what was taken", func(context.Context) error {
		l.m.keeper.Untake(l.choice.Lease)
		return nil
	})
	if err := l.announce(); err != nil {
		return err
	}
	// When it is announced: of two that are launched at a time one sees the other.
	if err := onlyOne(l.m, l.vms.others(l.m)); err != nil {
		return err
	}
	if err := disksFree(l.m, l.vms.others(l.m), l.m.usedDisks()); err != nil {
		return err
	}
	faultpoint.Reach("agent.launch.announced")
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
		faultpoint.Reach("agent.launch.acquired")
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

// acquire has the placement make what the run needs.
func (l *launch) acquire(ctx context.Context) error {
	got, err := l.m.place.Acquire(ctx, &l.choice.Choice)
	if err != nil {
		return err
	}
	l.shim, l.pid, l.files = got.Shim, got.PID, got.Files
	l.undo.Push("take back what was acquired", func(ctx context.Context) error { return got.Undo(ctx, l.failure) })
	return nil
}

// announce puts the VM into the state of being started.
func (l *launch) announce() error {
	state, message := lifecycle.Starting, "starting with "+l.choice.VMM.Name()+" under "+l.choice.Spec.GetHypervisor()
	if l.image != nil {
		state, message = lifecycle.Restoring, "restoring from "+l.image.Directory
	}
	l.m.log.Info("chosen", "hypervisor", fault.Clip(l.choice.reason, fault.MaxLogged), "vmm", fault.Clip(l.choice.vmmReason, fault.MaxLogged))
	return l.m.Change(func(vm *nodev1.VirtualMachine) {
		l.choice.describe(vm)
		vm.Status.State, vm.Status.Message, vm.Status.Faults = state, message, nil
		vm.Status.BootId = l.bootID
	})
}

// openSeed adds cloud-init's seed to what goes with the plan.
func (l *launch) openSeed() error {
	seed, err := cloudinit.Seed(l.choice.ID, l.choice.Spec)
	if err != nil || seed == nil {
		return err
	}
	f, err := sealedFile(cloudinit.SeedName, seed)
	if err != nil {
		return err
	}
	l.files = append(l.files, f)
	return nil
}

// sealedFile is a file in memory that is open for reading only, and that nobody
// can change (memfd_create(2)).
func sealedFile(name string, content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if _, err := f.Write(content); err != nil {
		return nil, err
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE); err != nil {
		return nil, os.NewSyscallError("fcntl F_ADD_SEALS", err)
	}
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
}

// closeFiles closes the agent's own descriptors: the VMM has its own by then.
func (l *launch) closeFiles() {
	for _, f := range l.files {
		f.Close()
	}
}

// start has the shim start the VMM, and connects to that.
func (l *launch) start(ctx context.Context) error {
	if err := l.openSeed(); err != nil {
		return err
	}
	request, err := l.m.place.Request(&l.choice.Choice)
	if err != nil {
		return err
	}
	launched, err := l.shim.Launch(ctx, request, l.files, l.progress)
	if err != nil {
		return contract.Errorf("%s: %w", contract.ThisVM(l.m.name), err)
	}
	faultpoint.Reach("agent.launch.launched")
	l.vmmPID = launched.VMMPID
	dial := dialer(l.shims, l.m.place.RunDir())
	monitor, err := l.choice.VMM.Connect(ctx, dial)
	if err != nil {
		return fault.Errorf(codes.Unavailable, "%s: the VMM's monitor: %w", contract.ThisVM(l.m.name), err)
	}
	l.undo.Push("close the monitor", func(context.Context) error { return monitor.Close() })
	l.monitor = monitor
	faultpoint.Reach("agent.launch.connected")
	return nil
}

// settle makes the VM a running one.
func (l *launch) settle(ctx context.Context, message string) error {
	status, err := l.monitor.Status(ctx)
	if err != nil {
		return fault.Errorf(codes.Unavailable, "%s: the VMM's status: %w", contract.ThisVM(l.m.name), err)
	}
	state := lifecycle.Running
	if !status.Running {
		state = lifecycle.Paused
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	dial := dialer(l.shims, l.m.place.RunDir())
	alive := newLive(l.choice.Lease, l.shim, l.choice.VMM, dial, l.monitor)
	l.m.mu.Lock()
	l.m.live = alive
	l.m.mu.Unlock()
	shimPID, vmmPID := l.m.pids(l.pid, l.vmmPID)
	l.m.note(state, message, func(vm *nodev1.VirtualMachine) {
		if state == lifecycle.Paused && l.paused {
			vm.Status.PauseReason = nodev1.PauseReason_PAUSE_REASON_USER
		}
		vm.Status.Process = &nodev1.ProcessStatus{
			ShimPid: shimPID, VmmPid: vmmPID, Uid: l.choice.Lease.UID, Cgroup: l.choice.Lease.Searched().Path(),
		}
		vm.Status.Image = nil
		vm.Status.EndedAt = nil
		vm.Status.Guest = &nodev1.GuestStatus{Panicked: status.Panicked}
	})
	faultpoint.Reach("agent.launch.noted")
	inflate(ctx, l.m, l.monitor)
	l.supervisor.watch(l.m, alive)
	return nil
}

// LaunchImage checks an image and starts a VMM with it.
func (l *Launcher) LaunchImage(ctx context.Context, m *VM, i *Image, o RestoreOptions, progress func(shim.Progress)) (err error) {
	begun := time.Now()
	defer func() { l.stats.count(begun, 0, err) }()
	v, err := m.place.VMM(i.manifest.VMM.Name)
	if err != nil {
		return unfit("%s: the image was saved by %s: %w", o.Directory, i.manifest.VMM.Name, err)
	}
	if err := v.CheckImage(ctx, i.manifest); err != nil {
		return unfit("%s: %w", o.Directory, err)
	}
	if err := checkLazy(ctx, v, i, o); err != nil {
		return &UnfitError{err}
	}
	restore := &launch{
		Launcher: l, progress: progress, unrecorded: o.entered, once: o.Once,
		wanted: wanted{m: m, spec: i.Spec, paused: o.Paused, image: &vmm.Image{
			Directory: o.Directory, Manifest: i.manifest, Lazy: o.Lazy, AllowChangedDisks: o.AllowChangedDisks,
		}},
	}
	if err := restore.run(ctx, "restored from "+o.Directory); err != nil {
		return err
	}
	l.guests.SetGuestTime(m)
	return nil
}

// Restores counts those since the agent began.
func (l *Launcher) Restores() ImageStats { return l.stats.get() }
