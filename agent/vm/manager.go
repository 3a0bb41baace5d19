// Package vm manages the VMs of a node: it creates, starts, saves, restores, stops, adopts
// and deletes them, and keeps their records. It must not know how the API is served, what a
// pod is, or the agent's configuration: a place.Placement is where a VM lives. Start reading
// at Manager, and at launch for how a VM is started.
package vm

import (
	"context"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/vmlet/vmlet/agent/events"
	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/node"
	"github.com/vmlet/vmlet/agent/place"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/hypervisor"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/codes"
)

// history is how many events are kept in memory for those who come later.
const history = 1000

// Options are what a node's VMs are run with.
type Options struct {
	// Own is what VMs of the node itself are placed with.
	Own *place.Resources
	// Hypervisor of specifications that name none; empty: the first that works.
	Hypervisor string
	// BootID is the machine's since it was booted.
	BootID string
	Log    *slog.Logger
}

// Manager owns the node's VMs and the host resources that they use. Its methods may be
// called at the same time.
type Manager struct {
	own *place.Resources
	log *slog.Logger
	hub *events.Hub
	// followers are woken when a VM's record has changed, or a VM has come or gone.
	followers *events.Followers
	node      *node.Node
	layers    spec.Layers
	arch      string
	bootID    string
	// defaultHypervisor is that of specifications which say "auto".
	defaultHypervisor string

	// saves and restores count those of memory images.
	saves, restores imageCounter

	// guests bounds how many guests' agents are asked at a time.
	guests *semaphore.Weighted

	// ctx lives as long as the agent serves; watches end with it.
	ctx     context.Context
	watches sync.WaitGroup

	mu  sync.Mutex
	vms map[string]*VM
}

// New makes the manager of a node's VMs. What it begins ends with ctx.
func New(ctx context.Context, o Options) *Manager {
	n := o.Own.Node
	standard, warning := n.Hypervisors.Default(o.Hypervisor)
	if warning != "" {
		o.Log.Warn("configuration: " + warning)
	}
	return &Manager{
		own: o.Own, log: o.Log, hub: events.NewHub(history), followers: new(events.Followers), guests: semaphore.NewWeighted(guestsAsked), node: n, bootID: o.BootID,
		layers: n.Hypervisors.Layers(), arch: runtime.GOARCH, defaultHypervisor: standard,
		ctx: ctx, vms: make(map[string]*VM),
	}
}

// Validate returns all faults of a specification that are known before it is run:
// its own, and what the hypervisor and the VMM that it names can't do.
func (a *Manager) Validate(ctx context.Context, s *specv1.VirtualMachineSpec, find vmmFinder) error {
	faults := a.node.Hypervisors.Validate(s, a.arch, a.node.Names().VMMs...)
	v, err := find(s.GetVmm())
	if err != nil || spec.Validate(s) != nil {
		return faults.Err() // which VMM it is, and whether that is there, is seen at its start
	}
	if own, ok := v.(vmm.Validator); ok {
		named := s.GetHypervisor()
		if named == hypervisor.NameAuto {
			named = ""
		}
		faults = append(faults, own.Validate(spec.Default(s, a.target("", named, v), a.layers), a.arch)...)
	}
	return advised(ctx, faults.Err(), find)
}

// Get finds a VM by its name, if it is that of the pod that the context is for.
func (a *Manager) Get(ctx context.Context, name string) (*VM, error) {
	a.mu.Lock()
	m, ok := a.vms[name]
	a.mu.Unlock()
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
func (a *Manager) take(ctx context.Context, name string, op lifecycle.Operation) (m *VM, done func(), err error) {
	if m, err = a.Get(ctx, name); err != nil {
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
func (a *Manager) All() []*VM {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := make([]*VM, 0, len(a.vms))
	for _, m := range a.vms {
		list = append(list, m)
	}
	slices.SortFunc(list, func(x, y *VM) int { return strings.Compare(x.name, y.name) })
	return list
}

// add enters a VM of the node itself, unless one of that name is there, which is
// returned.
func (a *Manager) add(vm *nodev1.VirtualMachine) (m *VM, added bool) {
	m, done := a.enterOwn(vm)
	if done == nil {
		return m, false
	}
	done()
	return m, true
}

// enterOwn is Enter for a VM of the node itself.
func (a *Manager) enterOwn(vm *nodev1.VirtualMachine) (m *VM, done func()) {
	name := vm.GetSpec().GetName()
	return a.Enter(name, a.own.At(name), vm)
}

// Enter is add, with a new VM taken until done is called: nobody gets hold of
// one that may be taken back. done is nil if the VM was there.
func (a *Manager) Enter(name string, p place.Placement, vm *nodev1.VirtualMachine) (m *VM, done func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if there, ok := a.vms[name]; ok {
		return there, nil
	}
	m = newVM(name, p, vm, a.hub, a.followers, a.log)
	m.slot <- struct{}{}
	a.vms[name] = m
	a.followers.Wake()
	return m, func() { <-m.slot }
}

// drop forgets a VM.
func (a *Manager) drop(m *VM) {
	m.leave()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.vms[m.name] == m {
		delete(a.vms, m.name)
	}
	a.followers.Wake()
}

// Context ends when the agent does; VMs go on after that.
func (a *Manager) Context() context.Context { return a.ctx }

// Go runs what Wait waits for. It is to end with Context.
func (a *Manager) Go(f func()) { a.watches.Go(f) }

// Wait returns when nothing is watched any more, after Context has ended.
func (a *Manager) Wait() { a.watches.Wait() }

// Subscribe hands on the events of the VM of a name, or of all if that is empty, from the
// last tail on. Up to buffer of them wait for slow subscribers.
func (a *Manager) Subscribe(name string, tail uint32, buffer int) *events.Subscription {
	return a.hub.Subscribe(name, int(min(tail, history)), buffer)
}

// Follow returns a channel that has a value when a VM may have changed, come or gone since it
// was last received from, and at first: All and Snapshot say what is new. stop ends that.
func (a *Manager) Follow() (changed <-chan struct{}, stop func()) { return a.followers.Follow() }

// Console connects to a VM's serial console; backlog bytes of what it has printed come
// first.
func (a *Manager) Console(ctx context.Context, name string, backlog int) (net.Conn, error) {
	_, l, err := a.reach(ctx, name, lifecycle.Console)
	if err != nil {
		return nil, err
	}
	return l.shim.Console(ctx, backlog)
}

// DismissEnded is Dismiss for a VM that has ended. It is FailedPrecondition while the VM runs, may
// run, or is taken by an operation.
func (a *Manager) DismissEnded(m *VM) error {
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
	a.Dismiss(m)
	return nil
}

// Dismiss drops a VM, and what is left of a shim that did not answer.
func (a *Manager) Dismiss(m *VM) {
	a.drop(m)
	m.mu.Lock()
	lost := m.lost
	m.lost = nil
	m.mu.Unlock()
	if lost != nil {
		lost.Close()
	}
}
