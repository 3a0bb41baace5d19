package vm

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmlet/vmlet/agent/events"
	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/plan"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/vmm"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// errKilled is the cause with which kill ends a start or a restore under way.
var errKilled = fault.Errorf(codes.Aborted, "the VM was killed meanwhile")

// VM is one VM: its record, the operation under way, and what runs.
type VM struct {
	name   string
	place  place.Placement
	keeper place.Keeper
	// container is the place, if it is one; nil: it is the node itself.
	container place.Container
	hub       *events.Hub
	followers *events.Followers
	log       *slog.Logger

	// panics is how many the guest has had, as far as they were reported.
	panics atomic.Uint64

	// slot is taken by the operation under way: there is one at a time.
	slot chan struct{}

	// persisting is held while the record is written, so that the latest is
	// what ends up on disk.
	persisting sync.Mutex

	mu sync.Mutex
	// record is replaced, never changed: its holders may keep it.
	record *nodev1.VirtualMachine
	// broken says why the record could not be read; then record is a stand-in.
	broken error
	// gone: it was deleted.
	gone bool
	// interrupt ends the start or restore under way; nil: there is none.
	interrupt context.CancelCauseFunc
	// live is what runs; nil: nothing does.
	live *live
	// disks are those of what runs.
	disks []place.UsedDisk
	// lost is a shim that runs, or may, and does not answer; nil: there is none.
	lost place.ShimProcess
}

func newVM(name string, p place.Placement, record *nodev1.VirtualMachine, hub *events.Hub, followers *events.Followers, log *slog.Logger) *VM {
	keeper, is := p.(place.Keeper)
	if !is {
		keeper = elsewhere{}
	}
	container, _ := p.(place.Container)
	return &VM{
		name: name, place: p, keeper: keeper, container: container, hub: hub, followers: followers, record: record,
		log:  log.With("vm", name, "id", record.GetId()),
		slot: make(chan struct{}, 1),
	}
}

// Name is the VM's in the agent's API.
func (m *VM) Name() string { return m.name }

// Placement is where the VM is.
func (m *VM) Placement() place.Placement { return m.place }

// Log is the agent's, with the VM in each line.
func (m *VM) Log() *slog.Logger { return m.log }

// Panics is how many the guest has had, as far as they were reported.
func (m *VM) Panics() uint64 { return m.panics.Load() }

// Lease is what the present run has of the host; nil: nothing runs.
func (m *VM) Lease() *place.Lease {
	l := m.running()
	if l == nil {
		return nil
	}
	return l.lease
}

// Ended is closed when the present run has ended, or its shim was lost and maybe found
// again; nil: nothing runs.
func (m *VM) Ended() <-chan struct{} {
	l := m.running()
	if l == nil {
		return nil
	}
	return l.over
}

// Sampler asks the VMM, unless it is busy with something else or can't be asked: then it is nil.
func (m *VM) Sampler() vmm.Sampler {
	l := m.running()
	if s := m.State(); l == nil || (s != lifecycle.Running && s != lifecycle.Paused) {
		return nil
	}
	monitor, err := l.connected()
	if err != nil {
		return nil
	}
	sampler, _ := monitor.(vmm.Sampler)
	return sampler
}

// pids are the numbers on this node of the shim's process and its VMM's.
func (m *VM) pids(shim, vmm int) (int64, int64) {
	if m.container != nil {
		shim, vmm = m.container.ShimPID(shim), m.container.VMMPID(vmm)
	}
	return int64(shim), int64(vmm)
}

// leave has every operation find that the VM no longer exists.
func (m *VM) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gone = true
}

func (m *VM) left() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gone
}

// Snapshot is the VM as it is now; it is not to be changed.
func (m *VM) Snapshot() *nodev1.VirtualMachine {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.record
}

// State is the VM's as it is now.
func (m *VM) State() lifecycle.State { return m.Snapshot().GetStatus().GetState() }

// running is what runs, or nil.
func (m *VM) running() *live {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.live
}

// Change replaces the record by a changed copy and tells those who watch. It
// refuses a state that can't follow the present one.
func (m *VM) Change(mutate func(*nodev1.VirtualMachine)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changeLocked(mutate)
}

func (m *VM) changeLocked(mutate func(*nodev1.VirtualMachine)) error {
	before := m.record
	after := proto.CloneOf(before)
	if after.Status == nil {
		after.Status = new(nodev1.VirtualMachineStatus)
	}
	mutate(after)
	fitReasons(after.Status)
	after.Status.Message = fault.Clip(after.Status.Message, fault.MaxMessage)
	from, to := before.GetStatus().GetState(), after.GetStatus().GetState()
	if !lifecycle.May(from, to) {
		return fault.Errorf(codes.Internal, "%s is %s and can't become %s", contract.ThisVM(m.name), lifecycle.Name(from), lifecycle.Name(to))
	}
	m.record = after
	m.followers.Wake()
	if from != to {
		m.log.Info("state", "from", lifecycle.Name(from), "to", lifecycle.Name(to), "message", fault.Clip(after.Status.Message, fault.MaxLogged))
		m.hub.Publish(&nodev1.Event{
			Time: timestamppb.Now(), Vm: m.name, VmId: after.Id, Type: "state", State: to, Message: after.Status.Message,
		})
	}
	return nil
}

// persist writes the record as it is now.
func (m *VM) persist() error {
	m.persisting.Lock()
	defer m.persisting.Unlock()
	m.mu.Lock()
	record, gone := m.record, m.gone || m.broken != nil
	m.mu.Unlock()
	if gone {
		return nil
	}
	return m.keeper.Keep(record)
}

// become changes the state and persists it.
func (m *VM) become(s lifecycle.State, message string, mutate ...func(*nodev1.VirtualMachine)) error {
	if err := m.Change(to(s, message, mutate)); err != nil {
		return err
	}
	return m.persist()
}

// to is a change of a record to a state, and what else changes with it.
func to(s lifecycle.State, message string, mutate []func(*nodev1.VirtualMachine)) func(*nodev1.VirtualMachine) {
	return func(vm *nodev1.VirtualMachine) {
		vm.Status.State, vm.Status.Message, vm.Status.Faults = s, message, nil
		for _, f := range mutate {
			f(vm)
		}
	}
}

// note is become for what has happened already: that it can't be written down
// is logged, and the record in memory is right all the same.
func (m *VM) note(s lifecycle.State, message string, mutate ...func(*nodev1.VirtualMachine)) {
	if err := m.become(s, message, mutate...); err != nil {
		m.log.Error("failed to write the VM's record", "state", lifecycle.Name(s), "error", err)
	}
}

// moved notes a change that was not requested, or that was requested just now. In other
// states, such as saving, pauses are part of what is being done.
func (m *VM) moved(from, next lifecycle.State, message string, mutate ...func(*nodev1.VirtualMachine)) {
	for !m.movedSince(m.Snapshot(), from, next, message, mutate...) {
	}
}

// movedSince is moved if the VM is as it was before, which it reports.
func (m *VM) movedSince(before *nodev1.VirtualMachine, from, next lifecycle.State, message string, mutate ...func(*nodev1.VirtualMachine)) (asBefore bool) {
	m.mu.Lock()
	if m.record != before {
		m.mu.Unlock()
		return false
	}
	changed := before.GetStatus().GetState() == from
	var err error
	if changed {
		err = m.changeLocked(to(next, message, mutate))
	}
	m.mu.Unlock()
	if err == nil && changed {
		err = m.persist()
	}
	if err != nil {
		m.log.Error("failed to write the VM's record", "error", err)
	}
	return true
}

// stamp is a moment that a VMM or a shim has reported, or now if it is none that can be
// written down (the years 1 to 9999): a record with such a one could not be kept.
func stamp(told time.Time) *timestamppb.Timestamp {
	if at := timestamppb.New(told); at.IsValid() {
		return at
	}
	return timestamppb.Now()
}

// Publish tells those who watch of something that is not a change of state.
func (m *VM) Publish(e *nodev1.Event) {
	vm := m.Snapshot()
	if e.Time == nil {
		e.Time = timestamppb.Now()
	}
	e.Message = fault.Clip(e.Message, fault.MaxMessage)
	e.Vm, e.VmId, e.State = m.name, vm.GetId(), vm.GetStatus().GetState()
	m.hub.Publish(e)
}

// begin takes the VM for an operation, waiting for another that is short. The
// verdict is Do, with the VM taken until done is called, or Already.
func (m *VM) begin(ctx context.Context, op lifecycle.Operation) (verdict lifecycle.Verdict, done func(), err error) {
	// Looked at twice: an operation that takes long is not waited for, and one
	// that was waited for has changed the state.
	if _, err := m.check(op); err != nil {
		return lifecycle.Refuse, nil, err
	}
	select {
	case m.slot <- struct{}{}:
	case <-ctx.Done():
		return lifecycle.Refuse, nil, context.Cause(ctx)
	}
	verdict, err = m.check(op)
	if verdict == lifecycle.Wait {
		// Nobody is at it any more, as when the agent came back in the middle.
		verdict = lifecycle.Do
	}
	if verdict != lifecycle.Do {
		<-m.slot
		return verdict, nil, err
	}
	return verdict, func() { <-m.slot }, nil
}

func (m *VM) check(op lifecycle.Operation) (lifecycle.Verdict, error) {
	if err := m.place.Refuses(op); err != nil {
		return lifecycle.Refuse, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.gone:
		return lifecycle.Refuse, notFound(m.name)
	case m.lost != nil && op != lifecycle.Kill:
		return lifecycle.Refuse, fault.Errorf(codes.FailedPrecondition, "%s: %s: kill the VM first", contract.ThisVM(m.name), plight(m.lost))
	case m.lost != nil:
		return lifecycle.Do, nil
	case m.broken != nil && op != lifecycle.Delete:
		return lifecycle.Refuse, fault.Errorf(codes.FailedPrecondition, "%s: its record can't be read: %w: put the file right and start the agent again, or delete the VM",
			contract.ThisVM(m.name), m.broken)
	case m.broken != nil:
		return lifecycle.Do, nil
	}
	return lifecycle.Check(m.name, op, m.record.GetStatus().GetState())
}

// interruptible makes a context for a start or a restore that kill may end.
func (m *VM) interruptible(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	m.mu.Lock()
	m.interrupt = cancel
	m.mu.Unlock()
	return ctx, func() {
		m.mu.Lock()
		m.interrupt = nil
		m.mu.Unlock()
		cancel(nil)
	}
}

// NewRecord is the record of a VM that was just created.
func NewRecord(s *specv1.VirtualMachineSpec, id string) *nodev1.VirtualMachine {
	return &nodev1.VirtualMachine{
		Id:     id,
		Spec:   proto.CloneOf(s),
		Status: &nodev1.VirtualMachineStatus{State: lifecycle.Created, CreatedAt: timestamppb.Now()},
	}
}

// runIDOf is that of a VM's present or last run.
func runIDOf(vm *nodev1.VirtualMachine) string {
	return place.RunID(vm.GetId(), vm.GetStatus().GetStartedAt().AsTime())
}

// stoppedByDisk says whether a VM waits for a disk.
func stoppedByDisk(m *VM) bool {
	s := m.Snapshot().GetStatus()
	return s.GetState() == lifecycle.Paused && s.GetPauseReason() == nodev1.PauseReason_PAUSE_REASON_IO_ERROR
}

// elsewhere is the keeper of VMs that have nothing of the host.
type elsewhere struct{}

func (elsewhere) Keep(*nodev1.VirtualMachine) error            { return nil }
func (elsewhere) HasImage(*nodev1.ImageReference) bool         { return false }
func (elsewhere) Granting(*place.Lease, []plan.File) error     { return nil }
func (elsewhere) Untake(*place.Lease)                          {}
func (elsewhere) GiveBack(context.Context, *place.Lease) error { return nil }
func (elsewhere) Sweep(context.Context) error                  { return nil }

func notFound(name string) error {
	return fault.Errorf(codes.NotFound, "no vm named %q: run `vmlet list` to see existing VMs", name)
}
