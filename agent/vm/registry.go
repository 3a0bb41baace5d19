package vm

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/vmlet/vmlet/agent/events"
	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/vmm"
	"google.golang.org/grpc/codes"
)

// history is how many events are kept in memory for those who come later.
const history = 1000

// Registry has the node's VMs by their names, and who follows them.
type Registry struct {
	log *slog.Logger
	hub *events.Hub
	// followers are woken when a VM's record has changed, or a VM has come or gone.
	followers *events.Followers

	mu  sync.Mutex
	vms map[string]*VM
}

// Get finds a VM by its name, if it is that of the pod that the context is for.
func (r *Registry) Get(ctx context.Context, name string) (*VM, error) {
	r.mu.Lock()
	m, ok := r.vms[name]
	r.mu.Unlock()
	if !ok {
		return nil, notFound(name)
	}
	pod, _ := ctx.Value(podKey{}).(string)
	if own := m.Snapshot().GetStatus().GetPod().GetUid(); pod != "" && own != pod {
		return nil, fault.Errorf(codes.NotFound, "%s is another than that of pod %s, which is not on this node any more", contract.ThisVM(name), pod)
	}
	return m, nil
}

// take finds a VM and takes it for an operation, until done is called.
func (r *Registry) take(ctx context.Context, name string, op lifecycle.Operation) (m *VM, done func(), err error) {
	if m, err = r.Get(ctx, name); err != nil {
		return nil, nil, err
	}
	_, done, err = m.begin(ctx, op)
	return m, done, err
}

// podKey has the UID of a pod in a context.
type podKey struct{}

// ForPod has what is done with a context be done with the VM of the pod of a UID alone, and with no other of its name.
func ForPod(ctx context.Context, uid string) context.Context {
	return context.WithValue(ctx, podKey{}, uid)
}

// OfOnePod says whether that context is for the VM of one pod.
func OfOnePod(ctx context.Context) bool {
	pod, _ := ctx.Value(podKey{}).(string)
	return pod != ""
}

// All are the VMs, by name.
func (r *Registry) All() []*VM {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]*VM, 0, len(r.vms))
	for _, m := range r.vms {
		list = append(list, m)
	}
	slices.SortFunc(list, func(x, y *VM) int { return strings.Compare(x.name, y.name) })
	return list
}

// others are all VMs but one.
func (r *Registry) others(m *VM) []*VM {
	return slices.DeleteFunc(r.All(), func(other *VM) bool { return other == m })
}

// Enter adds a VM, unless one of that name is there, which is returned, with done nil. A new
// VM is taken until done is called: nobody gets hold of one that may be taken back.
func (r *Registry) Enter(name string, p place.Placement, vm *nodev1.VirtualMachine) (m *VM, done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if there, ok := r.vms[name]; ok {
		return there, nil
	}
	m = newVM(name, p, vm, r.hub, r.followers, r.log)
	m.slot <- struct{}{}
	r.vms[name] = m
	r.followers.Wake()
	return m, func() { <-m.slot }
}

// drop forgets a VM.
func (r *Registry) drop(m *VM) {
	m.leave()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.vms[m.name] == m {
		delete(r.vms, m.name)
	}
	r.followers.Wake()
}

// Subscribe hands on the events of the VM of a name, or of all if that is empty, from the
// last tail on. Up to buffer of them wait for slow subscribers.
func (r *Registry) Subscribe(name string, tail uint32, buffer int) *events.Subscription {
	return r.hub.Subscribe(name, int(min(tail, history)), buffer)
}

// Follow returns a channel that has a value when a VM may have changed, come or gone since it
// was last received from, and at first: All and Snapshot say what is new. stop ends that.
func (r *Registry) Follow() (changed <-chan struct{}, stop func()) { return r.followers.Follow() }

// DismissEnded is Dismiss for a VM that has ended. It is FailedPrecondition while the VM runs, may
// run, or is taken by an operation.
func (r *Registry) DismissEnded(m *VM) error {
	select {
	case m.slot <- struct{}{}:
		defer func() { <-m.slot }()
	default:
		return fault.Errorf(codes.FailedPrecondition, "%s: an operation is under way", contract.ThisVM(m.name))
	}
	// The record says what was known last: of a shim that did not answer, its process says more.
	process, err := place.RunningShim(m.place.Process())
	if process != nil {
		process.Close()
	}
	switch s := m.State(); {
	case m.running() != nil || lifecycle.Live(s):
		return fault.Errorf(codes.FailedPrecondition, "%s is %s", contract.ThisVM(m.name), lifecycle.Name(s))
	case err != nil:
		return fault.Errorf(codes.FailedPrecondition, "%s: whether its shim runs: %w", contract.ThisVM(m.name), err)
	case process != nil:
		return fault.Errorf(codes.FailedPrecondition, "%s: %s", contract.ThisVM(m.name), plight(process))
	}
	r.Dismiss(m)
	return nil
}

// Dismiss drops a VM, and what is left of a shim that did not answer.
func (r *Registry) Dismiss(m *VM) {
	r.drop(m)
	m.mu.Lock()
	lost := m.lost
	m.lost = nil
	m.mu.Unlock()
	if lost != nil {
		lost.Close()
	}
}

// operate does something short with the monitor of the VM of a name.
func (r *Registry) operate(ctx context.Context, name string, op lifecycle.Operation, do func(context.Context, *VM, vmm.Monitor) error) (*nodev1.VirtualMachine, error) {
	m, err := r.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	return operate(ctx, m, op, do)
}

// background runs what goes on beside the calls of the API.
type background struct {
	// ctx lives as long as the agent serves.
	ctx   context.Context
	tasks sync.WaitGroup
}

// Context ends when the agent does; VMs go on after that.
func (b *background) Context() context.Context { return b.ctx }

// Go runs what Wait waits for. It is to end with Context.
func (b *background) Go(f func()) { b.tasks.Go(f) }

// Wait returns when nothing is watched any more, after Context has ended.
func (b *background) Wait() { b.tasks.Wait() }
