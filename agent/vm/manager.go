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

// Manager owns the node's VMs and the host resources that they use: it creates and deletes the
// node's own VMs, and starts and restores them; its parts do the rest with any VM. All may
// be called at the same time.
type Manager struct {
	*Registry
	*background
	own *place.Resources

	Platform *Platform
	Guests   *Guests
	Launcher *Launcher
	Power    *Power
	Hotplug  *Hotplug
	Saver    *Saver
	Adopter  *Adopter
}

// New makes the manager of a node's VMs. What it begins ends with ctx.
func New(ctx context.Context, o Options) *Manager {
	vms := &Registry{log: o.Log, hub: events.NewHub(history), followers: new(events.Followers), vms: make(map[string]*VM)}
	tasks := &background{ctx: ctx}
	platform := newPlatform(o)
	guests := &Guests{vms: vms, tasks: tasks, asked: semaphore.NewWeighted(guestsAsked)}
	watching := &supervisor{tasks: tasks, followers: vms.followers, guests: guests}
	return &Manager{
		Registry: vms, background: tasks, own: o.Own, Platform: platform, Guests: guests,
		Launcher: &Launcher{vms: vms, platform: platform, guests: guests, supervisor: watching, shims: o.Own.Shims, bootID: o.BootID},
		Power:    &Power{vms: vms, tasks: tasks, guests: guests},
		Hotplug:  &Hotplug{vms: vms, platform: platform, own: o.Own},
		Saver:    &Saver{vms: vms, tasks: tasks},
		Adopter:  &Adopter{sweeper: &sweeper{vms: vms, tasks: tasks, own: o.Own, log: o.Log}, supervisor: watching, bootID: o.BootID},
	}
}

// Registry has the node's VMs by their names, and who follows them.
type Registry struct {
	log *slog.Logger
	hub *events.Hub
	// followers are woken when a VM's record has changed, or a VM has come or gone.
	followers *events.Followers

	mu  sync.Mutex
	vms map[string]*VM
}

// background runs what goes on beside the calls of the API.
type background struct {
	// ctx lives as long as the agent serves.
	ctx   context.Context
	tasks sync.WaitGroup
}

// Platform is what specifications are validated and completed for.
type Platform struct {
	node   *node.Node
	layers spec.Layers
	arch   string
	// defaultHypervisor is that of specifications which say "auto".
	defaultHypervisor string
}

func newPlatform(o Options) *Platform {
	n := o.Own.Node
	standard, warning := n.Hypervisors.Default(o.Hypervisor)
	if warning != "" {
		o.Log.Warn("configuration: " + warning)
	}
	return &Platform{node: n, layers: n.Hypervisors.Layers(), arch: runtime.GOARCH, defaultHypervisor: standard}
}

// Validate returns all faults of a specification that are known before it is run:
// its own, and what the hypervisor and the VMM that it names can't do.
func (p *Platform) Validate(ctx context.Context, s *specv1.VirtualMachineSpec, find vmmFinder) error {
	faults := p.node.Hypervisors.Validate(s, p.arch, p.Names(s, find).VMMs...)
	v, err := find(s.GetVmm())
	if err != nil || spec.Validate(s) != nil {
		return faults.Err() // which VMM it is, and whether that is there, is seen at its start
	}
	if own, ok := v.(vmm.Validator); ok {
		named := s.GetHypervisor()
		if named == hypervisor.NameAuto {
			named = ""
		}
		faults = append(faults, own.Validate(spec.Default(s, p.target("", named, v), p.layers), p.arch)...)
	}
	return advised(ctx, faults.Err(), find)
}

// Names are those that a specification may have: the node's, and that of the VMM that it names if that is
// found where the VM is.
func (p *Platform) Names(s *specv1.VirtualMachineSpec, find vmmFinder) spec.Names {
	names := p.node.Names()
	if v, err := find(s.GetVmm()); err == nil && !slices.Contains(names.VMMs, v.Name()) {
		names.VMMs = append(names.VMMs, v.Name())
	}
	return names
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

// Context ends when the agent does; VMs go on after that.
func (b *background) Context() context.Context { return b.ctx }

// Go runs what Wait waits for. It is to end with Context.
func (b *background) Go(f func()) { b.tasks.Go(f) }

// Wait returns when nothing is watched any more, after Context has ended.
func (b *background) Wait() { b.tasks.Wait() }

// Subscribe hands on the events of the VM of a name, or of all if that is empty, from the
// last tail on. Up to buffer of them wait for slow subscribers.
func (r *Registry) Subscribe(name string, tail uint32, buffer int) *events.Subscription {
	return r.hub.Subscribe(name, int(min(tail, history)), buffer)
}

// Follow returns a channel that has a value when a VM may have changed, come or gone since it
// was last received from, and at first: All and Snapshot say what is new. stop ends that.
func (r *Registry) Follow() (changed <-chan struct{}, stop func()) { return r.followers.Follow() }

// Console connects to a VM's serial console; backlog bytes of what it has printed come
// first.
func (g *Guests) Console(ctx context.Context, name string, backlog int) (net.Conn, error) {
	_, l, err := g.reach(ctx, name, lifecycle.Console)
	if err != nil {
		return nil, err
	}
	return l.shim.Console(ctx, backlog)
}

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
