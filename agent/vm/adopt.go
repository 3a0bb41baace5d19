package vm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/internal/faultpoint"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// endingPatience is how long a shim that refuses a connection may take to end:
// it has nothing left to do but that.
const endingPatience = 2 * time.Second

// adopters is how many VMs are adopted at a time: most of it is waiting.
const adopters = 16

// Adopter takes up the VMs that run when an agent comes back.
type Adopter struct {
	*sweeper
	supervisor *supervisor
	// bootID is the machine's since it was booted.
	bootID string
}

// Adopt reads the folders and takes up what runs. What is wrong with one VM
// costs that VM only.
func (a *Adopter) Adopt(ctx context.Context) error {
	names, err := a.own.Store.Names()
	if err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(adopters)
	for _, name := range names {
		group.Go(func() error {
			a.adoptOne(ctx, name)
			return nil
		})
	}
	_ = group.Wait() // it has none
	faultpoint.Reach("agent.adopt.all")
	a.sweep()
	return ctx.Err()
}

func (a *Adopter) adoptOne(ctx context.Context, name string) {
	gone, err := a.own.Store.Sweep(name)
	if err != nil {
		a.log.Error("failed to tidy a VM's directory", "vm", name, "error", err)
	}
	if gone {
		return
	}
	vm, err := a.own.Store.Load(name)
	if err != nil {
		a.log.Error("a VM's record can't be read", "vm", name, "error", err)
		a.enterBroken(name, err)
		return
	}
	if vm.Status == nil {
		vm.Status = &nodev1.VirtualMachineStatus{State: lifecycle.Created}
	}
	faultpoint.Reach("agent.adopt.loaded")
	m := a.enter(name, vm)
	ad := &adoption{Adopter: a, m: m}
	ad.run(ctx)
}

// enter lists a VM of the node itself.
func (a *Adopter) enter(name string, vm *nodev1.VirtualMachine) *VM {
	m, done := a.vms.Enter(name, a.own.At(name), vm)
	if done != nil {
		done()
	}
	return m
}

// enterBroken lists a VM whose record can't be read.
func (a *Adopter) enterBroken(name string, err error) {
	m := a.enter(name, &nodev1.VirtualMachine{
		Spec: &specv1.VirtualMachineSpec{Name: name},
		Status: &nodev1.VirtualMachineStatus{
			State:   lifecycle.Crashed,
			Message: fmt.Sprintf("its record can't be read: %v", err),
		},
	})
	m.broken = err
	look := func() (place.ShimProcess, error) { return a.own.Shims.Process(a.own.Store.RunDir(name)) }
	process, err := place.RunningShim(look())
	if err != nil {
		process = &unseen{look}
	}
	if process != nil {
		m.lost = process // it runs, or may, and is to be ended before it is deleted
	}
	a.claimUser(name)
}

// adoption finds out what has become of one VM while no agent was there.
type adoption struct {
	*Adopter
	m     *VM
	lease *place.Lease // nil: it has nothing of the host
}

func (ad *adoption) run(ctx context.Context) {
	m := ad.m
	runDir := m.place.RunDir()
	var err error
	if ad.lease, err = place.ReadLease(runDir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.log.Error("failed to read which host resources the VM has", "error", err)
	}
	// Whether it runs or not: what it has left may have the user id still.
	ad.claimUser(m.name)
	process, err := place.RunningShim(m.place.Process())
	switch {
	case err != nil:
		ad.lost(&unseen{m.place.Process}, err)
	case process != nil:
		ad.alive(ctx, process)
	default:
		ad.ended()
	}
}

// alive takes up a VM whose shim runs.
func (ad *adoption) alive(ctx context.Context, process place.ShimProcess) {
	ctx, cancel := context.WithTimeout(ctx, adoptPatience)
	defer cancel()
	for !ad.call(ctx, process) {
		select {
		case <-time.After(launchPace):
		case <-ctx.Done():
		}
	}
}

// launchPace is between two calls of a shim in the middle of a launch.
const launchPace = 50 * time.Millisecond

// call asks a shim for its VMM. It is to be called again if it reports false: a launch is
// under way then that its agent did not live to see through, which is being taken back,
// or its VMM runs by now.
func (ad *adoption) call(ctx context.Context, process place.ShimProcess) (settled bool) {
	conn, err := ad.m.place.Dial(ctx)
	faultpoint.Reach("agent.adopt.dialled")
	switch {
	case err != nil:
		// One that ends closes its socket a moment before.
		ad.awaitEnd(ctx, process, endingPatience, err)
	case conn.Welcome().VMMPID == 0:
		err = release(ctx, conn)
		var refused *shim.Error
		if errors.As(err, &refused) && ctx.Err() == nil {
			return false
		}
		ad.awaitEnd(ctx, process, adoptPatience, err)
	case ad.lease == nil:
		ad.lost(process, errors.Join(fmt.Errorf("without a %s it can't be adopted", place.LeaseName), conn.Close()))
	default:
		process.Close()
		ad.takeUp(ctx, conn)
	}
	return true
}

// awaitEnd is for a shim that is about to end. What it has is not touched
// before it has.
func (ad *adoption) awaitEnd(ctx context.Context, process place.ShimProcess, patience time.Duration, cause error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := process.Wait(ctx); err != nil {
		ad.lost(process, errors.Join(cause, err))
		return
	}
	process.Close()
	ad.ended()
}

// release ends a shim whose agent died before it had it start a VMM.
func release(ctx context.Context, conn place.Shim) error {
	defer conn.Close()
	return conn.Release(ctx, nil)
}

// TakeUp makes a VM the agent's again whose shim runs, and which has that lease.
func (a *Adopter) TakeUp(ctx context.Context, m *VM, l *place.Lease, conn place.Shim) {
	ctx, cancel := context.WithTimeout(ctx, adoptPatience)
	defer cancel()
	ad := &adoption{Adopter: a, m: m, lease: l}
	ad.takeUp(ctx, conn)
}

// takeUp makes a VM that runs the agent's again.
func (ad *adoption) takeUp(ctx context.Context, conn place.Shim) {
	m := ad.m
	welcome := conn.Welcome()
	if err := ad.renewed(welcome); err != nil {
		m.log.Error("failed to find out which VMM the VM has", "error", err)
	}
	dial := dialer(ad.own.Shims, m.place.RunDir())
	l := newLive(ad.lease, conn, nil, dial, nil)
	v, err := m.place.VMM(ad.lease.VMM)
	var status vmm.Status
	if err == nil {
		l.vmm = v
		status, err = ad.connect(ctx, l)
	}
	var why pause
	state, message := lifecycle.Running, "adopted by a new agent"
	switch {
	case err != nil:
		m.log.Error("the VMM's monitor does not answer", "error", err)
		message = fmt.Sprintf("running, but its VMM's monitor does not answer: %v", err)
	case !status.Running:
		state = lifecycle.Paused
		why = pauseOf(status, m.Snapshot().GetStatus().GetEffectiveSpec())
		message = cmp.Or(why.message, message)
	}
	if m.State() == lifecycle.Saving {
		message = "the agent was lost while it was being saved: the save was given up"
	}
	faultpoint.Reach("agent.adopt.connected")
	shimPID, vmmPID := m.pids(welcome.PID, welcome.VMMPID)
	m.mu.Lock()
	m.live = l
	m.mu.Unlock()
	ad.observe(state, message, func(vm *nodev1.VirtualMachine) {
		ad.catchUp(vm)
		m.replay(vm, welcome.Notes)
		if !welcome.Saving { // else the shim may be at the commit
			vm.Status.Image = nil
		}
		vm.Status.EndedAt = nil
		if now := ad.lease.Manifest.VMM; vm.Status.GetVmm().GetVersion() != now.Version {
			vm.Status.Vmm = &nodev1.Vmm{Name: now.Name, Version: now.Version}
		}
		vm.Status.Process = &nodev1.ProcessStatus{
			ShimPid: shimPID, VmmPid: vmmPID, Uid: ad.lease.UID, Cgroup: ad.lease.Searched().Path(),
		}
		// A VMM that a disk's error has stopped doesn't know that its user has paused the guest since.
		was := vm.Status.PauseReason
		if was == nodev1.PauseReason_PAUSE_REASON_UNSPECIFIED || status.IOError && was != nodev1.PauseReason_PAUSE_REASON_USER {
			why.note(vm)
		}
		agentThere := vm.Status.GetGuest().GetAgentConnected()
		vm.Status.Guest = &nodev1.GuestStatus{Panicked: status.Panicked, AgentConnected: agentThere}
	})
	if monitor, err := l.connected(); err == nil {
		matching, cancel := context.WithTimeout(ad.tasks.ctx, statusPatience)
		matchSize(matching, m, monitor)
		cancel()
	}
	findDisks(ad.tasks.ctx, m)
	ad.supervisor.watch(m, l)
}

// catchUp fills in what a record does not say of a run that was started just
// before the agent was lost.
func (ad *adoption) catchUp(vm *nodev1.VirtualMachine) {
	if runIDOf(vm) == ad.lease.RunID {
		return
	}
	m := ad.lease.Manifest
	if s, err := spec.Parse(m.Specification, place.LeaseName); err == nil {
		vm.Status.EffectiveSpec = s
	}
	vm.Status.Hypervisor, vm.Status.MachineType = m.Accelerator, m.MachineType
	vm.Status.Vmm = &nodev1.Vmm{Name: m.VMM.Name, Version: m.VMM.Version}
	vm.Status.StartedAt = stamp(ad.lease.Start)
	vm.Status.BootId = ad.bootID
}

func (ad *adoption) connect(ctx context.Context, l *live) (vmm.Status, error) {
	monitor, err := l.vmm.Connect(ctx, l.dial)
	if err != nil {
		return vmm.Status{}, err
	}
	status, err := monitor.Status(ctx)
	if err != nil {
		return vmm.Status{}, errors.Join(err, monitor.Close())
	}
	l.swap(monitor)
	return status, nil
}

// ended finds out how a VM ended that does not run, and sweeps what it left.
func (ad *adoption) ended() {
	m := ad.m
	faultpoint.Reach("agent.adopt.ended")
	vm := m.Snapshot()
	switch state := vm.GetStatus().GetState(); {
	case !lifecycle.Live(state):
	case state == lifecycle.Starting || state == lifecycle.Restoring:
		ad.interrupted(vm)
	default:
		ad.classify(vm)
	}
	faultpoint.Reach("agent.adopt.classified")
	// What takes longer is left to the VM's next start: the agent has to get ready.
	ctx, cancel := context.WithTimeout(ad.tasks.ctx, adoptPatience)
	defer cancel()
	if ad.lease == nil {
		if err := errors.Join(m.keeper.Sweep(ctx), ad.own.Store.RemoveRunDir(m.name)); err != nil {
			m.log.Error("failed to remove what the VM left", "error", err)
		}
		return
	}
	if err := m.keeper.GiveBack(ctx, ad.lease); err != nil {
		m.log.Error("failed to release the VM's host resources", "error", err)
	}
}

// interrupted is a start that the agent did not live to see through.
func (ad *adoption) interrupted(vm *nodev1.VirtualMachine) {
	exit, err := shim.ReadExit(ad.m.place.StateDir())
	if err == nil && exit.RunID == runIDOf(vm) && exit.Reason != shim.ReasonFailed {
		noteEnd(ad.m, exit) // its VMM came up all the same, and has ended since
		return
	}
	message := "the agent was lost while the VM was being started"
	if vm.GetStatus().GetImage() != nil {
		ad.observe(lifecycle.Saved, message)
		return
	}
	ad.observe(lifecycle.Stopped, message)
}

// classify finds out how a VM that ran has ended.
func (ad *adoption) classify(vm *nodev1.VirtualMachine) {
	exit, err := shim.ReadExit(ad.m.place.StateDir())
	rebooted := vm.GetStatus().GetBootId() != ad.bootID
	switch intent := vm.GetStatus().GetImage(); {
	case err == nil && exit.RunID == runIDOf(vm):
		noteEnd(ad.m, exit)
	case intent != nil && ad.m.keeper.HasImage(intent):
		ad.observe(lifecycle.Saved, "saved to "+intent.GetPath())
	case rebooted:
		ad.observe(lifecycle.Stopped, "the machine was rebooted", endNow, noImage)
	default:
		noteEnd(ad.m, &shim.Exit{Reason: shim.ReasonCrashed, LastWords: "its shim ended without a word while no agent was there: was it killed?"})
	}
}

func endNow(vm *nodev1.VirtualMachine) {
	vm.Status.EndedAt, vm.Status.Process = timestamppb.Now(), nil
}

func noImage(vm *nodev1.VirtualMachine) { vm.Status.Image = nil }

// observe sets the state to what was found, which need not follow what was
// written down: any number of steps may lie between. Nobody sees the state without
// what belongs to it, such as why the VM is paused.
func (ad *adoption) observe(s lifecycle.State, message string, mutate ...func(*nodev1.VirtualMachine)) {
	m := ad.m
	m.mu.Lock()
	after := proto.CloneOf(m.record)
	after.Status.State = s
	m.record = after
	err := m.changeLocked(to(s, message, mutate))
	m.mu.Unlock()
	if err == nil {
		err = m.persist()
	}
	if err != nil {
		m.log.Error("failed to write the VM's record", "state", lifecycle.Name(s), "error", err)
	}
	m.log.Info("found", "state", lifecycle.Name(s), "message", fault.Clip(message, fault.MaxLogged))
}

// lost notes a shim that is lost when the agent comes back.
func (ad *adoption) lost(process place.ShimProcess, err error) {
	findDisks(ad.tasks.ctx, ad.m)
	ad.supervisor.lose(ad.m, process, err, ad.observe)
}
