package vm

import (
	"context"

	"github.com/google/uuid"
	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/faultpoint"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Create keeps a specification. The same one again changes nothing.
func (a *Manager) Create(ctx context.Context, s *specv1.VirtualMachineSpec) (*nodev1.VirtualMachine, error) {
	if err := a.own.CheckOwn(); err != nil {
		return nil, err
	}
	if s == nil {
		return nil, fault.Invalid("spec", "it is missing")
	}
	if err := a.Platform.Validate(ctx, s, a.own.Node.VMM); err != nil {
		return nil, err
	}
	m, done := a.enterOwn(NewRecord(s, uuid.NewString()))
	if done == nil {
		return sameSpec(m, s)
	}
	defer done()
	faultpoint.Reach("agent.create.entered")
	if err := m.persist(); err != nil {
		a.drop(m)
		return nil, contract.Errorf("keeping %s: %w", contract.ThisVM(m.name), err)
	}
	faultpoint.Reach("agent.create.kept")
	m.Publish(&nodev1.Event{Type: "state", Message: "created"})
	return m.Snapshot(), nil
}

// enterOwn enters a VM of the node itself.
func (a *Manager) enterOwn(vm *nodev1.VirtualMachine) (m *VM, done func()) {
	name := vm.GetSpec().GetName()
	return a.Enter(name, a.own.At(name), vm)
}

// NewRecord is the record of a VM that was just created.
func NewRecord(s *specv1.VirtualMachineSpec, id string) *nodev1.VirtualMachine {
	return &nodev1.VirtualMachine{
		Id:     id,
		Spec:   proto.CloneOf(s),
		Status: &nodev1.VirtualMachineStatus{State: lifecycle.Created, CreatedAt: timestamppb.Now()},
	}
}

func sameSpec(m *VM, s *specv1.VirtualMachineSpec) (*nodev1.VirtualMachine, error) {
	if m.left() {
		return nil, fault.Errorf(codes.Aborted, "%s is just being deleted: try again", contract.ThisVM(m.name))
	}
	vm := m.Snapshot()
	if proto.Equal(vm.GetSpec(), s) {
		return vm, nil
	}
	return nil, fault.Errorf(codes.AlreadyExists, "%s exists, with another specification: delete it first, or choose another name", contract.ThisVM(m.name))
}

// Delete forgets a VM that does not run.
func (a *Manager) Delete(ctx context.Context, name string) error {
	m, done, err := a.take(ctx, name, lifecycle.Delete)
	if err != nil {
		return err
	}
	defer done()
	if err := a.own.At(name).Reclaim(ctx); err != nil {
		return contract.Errorf("deleting %s: %w", contract.ThisVM(name), err)
	}
	m.persisting.Lock() // nothing is to write into the folder any more
	defer m.persisting.Unlock()
	faultpoint.Reach("agent.delete.begun")
	if err := a.own.Store.Delete(name); err != nil {
		return contract.Errorf("deleting %s: %w", contract.ThisVM(name), err)
	}
	faultpoint.Reach("agent.delete.removed")
	m.Publish(&nodev1.Event{Type: "deleted"})
	a.drop(m)
	return nil
}
