package agent

import (
	"context"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/vmlet/vmlet/agent/events"
	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/agent/node"
	"github.com/vmlet/vmlet/agent/store"
	"github.com/vmlet/vmlet/hypervisor"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"google.golang.org/grpc/codes"
)

// history is how many events are kept in memory for those who come later.
const history = 1000

// Options are what a node's VMs are run with.
type Options struct {
	// StateDir and RunDir are the agent's own directories, in which no image may be.
	StateDir, RunDir string
	// Shim is the path of vmlet-shim.
	Shim string
	// HotplugFolders are directories from which a running VM may be given disks.
	HotplugFolders []string
	// PodsOnly refuses VMs of the node's own.
	PodsOnly bool
	// Hypervisor of specifications that name none; empty: the first that works.
	Hypervisor string
	// BootID is the machine's since it was booted.
	BootID string
	Log    *slog.Logger
}

// Manager owns the node's VMs and the host resources that they use. Its methods may be
// called at the same time.
type Manager struct {
	opts   Options
	log    *slog.Logger
	store  *store.Store
	hub    *events.Hub
	node   *node.Node
	host   Host
	shims  Shims
	layers spec.Layers
	arch   string
	// defaultHypervisor is that of specifications which say "auto".
	defaultHypervisor string

	// ctx lives as long as the agent serves; watches end with it.
	ctx     context.Context
	watches sync.WaitGroup

	mu  sync.Mutex
	vms map[string]*VM
}

// newManager makes the manager of the VMs in a store. What it begins ends with ctx.
func newManager(ctx context.Context, o Options, st *store.Store, n *node.Node, h Host, s Shims) *Manager {
	standard, warning := n.Hypervisors.Default(o.Hypervisor)
	if warning != "" {
		o.Log.Warn("configuration: " + warning)
	}
	return &Manager{
		opts: o, log: o.Log, store: st, hub: events.NewHub(history), node: n, host: h, shims: s,
		layers: n.Hypervisors.Layers(), arch: runtime.GOARCH, defaultHypervisor: standard,
		ctx: ctx, vms: make(map[string]*VM),
	}
}

// validate returns all faults of a specification that can be told before it is run:
// its own, and what the hypervisor and the VMM that it names can't do.
func (a *Manager) validate(ctx context.Context, s *specv1.VirtualMachineSpec, find vmmFinder) error {
	faults := a.node.Hypervisors.Validate(s, a.arch)
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

// Get finds a VM by its name.
func (a *Manager) Get(name string) (*VM, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m, ok := a.vms[name]
	if !ok {
		return nil, notFound(name)
	}
	return m, nil
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

// enterOwn is enter for a VM of the node itself.
func (a *Manager) enterOwn(vm *nodev1.VirtualMachine) (m *VM, done func()) {
	name := vm.GetSpec().GetName()
	return a.enter(name, OnNode{a, name}, vm)
}

// enter is add, with a new VM taken until done is called: nobody gets hold of
// one that may be taken back. done is nil if the VM was there.
func (a *Manager) enter(name string, h Placement, vm *nodev1.VirtualMachine) (m *VM, done func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if there, ok := a.vms[name]; ok {
		return there, nil
	}
	m = newVM(name, h, vm, a.hub, a.log)
	m.slot <- struct{}{}
	a.vms[name] = m
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
}

// podsOnly refuses VMs of the node's own where the agent has its place, its
// processes and its limits from a DaemonSet: they would end with its pod.
func (a *Manager) podsOnly() error {
	if !a.opts.PodsOnly {
		return nil
	}
	return fault.Errorf(codes.FailedPrecondition, "this agent runs the VMs of pods only: make a pod whose container runs vmlet-shim pod (or start an agent with pods.enabled: false)")
}
