package agent

import (
	"context"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/vmlet/vmlet/agent/events"
	"github.com/vmlet/vmlet/agent/kube"
	"github.com/vmlet/vmlet/agent/node"
	"github.com/vmlet/vmlet/agent/store"
	"github.com/vmlet/vmlet/hypervisor"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
)

// history is how many events are kept in memory for those who come later.
const history = 1000

// agent is the VMs of a node and what they are run with.
type agent struct {
	cfg    Config
	log    *slog.Logger
	store  *store.Store
	hub    *events.Hub
	node   *node.Node
	host   Host
	shims  Shims
	layers spec.Layers
	arch   string
	bootID string
	// kube is the client of the API server; nil without one.
	kube *kube.Client
	// published is what Kubernetes is told of the node.
	published *publication
	// defaultHypervisor is that of specifications which say "auto".
	defaultHypervisor string

	offers   offers
	progress progress

	// ctx lives as long as the agent serves; watches end with it.
	ctx     context.Context
	watches sync.WaitGroup

	mu       sync.Mutex
	machines map[string]*machine
}

func newAgent(ctx context.Context, cfg Config, st *store.Store, n *node.Node, h Host, s Shims, bootID string) *agent {
	standard, warning := n.Hypervisors.Default(cfg.Hypervisor)
	for _, note := range append(cfg.VirtualizationProfile.Notes(), warning) {
		if note != "" {
			cfg.Log.Warn("configuration: " + note)
		}
	}
	return &agent{
		cfg: cfg, log: cfg.Log, store: st, hub: events.NewHub(history), node: n, host: h, shims: s,
		layers: n.Hypervisors.Layers(), arch: runtime.GOARCH, bootID: bootID, defaultHypervisor: standard,
		ctx: ctx, machines: make(map[string]*machine),
	}
}

// nodeName is the node's name in Kubernetes, or else the machine's.
func (a *agent) nodeName() (string, error) {
	if a.kube != nil {
		return a.kube.Node(), nil
	}
	return os.Hostname()
}

// validate returns all faults of a specification that can be told before it is run:
// its own, and what the hypervisor and the VMM that it names can't do.
func (a *agent) validate(ctx context.Context, s *specv1.VirtualMachineSpec, find vmmFinder) error {
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

// machine finds a VM by its name.
func (a *agent) machine(name string) (*machine, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m, ok := a.machines[name]
	if !ok {
		return nil, notFound(name)
	}
	return m, nil
}

// all are the VMs, by name.
func (a *agent) all() []*machine {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := make([]*machine, 0, len(a.machines))
	for _, m := range a.machines {
		list = append(list, m)
	}
	slices.SortFunc(list, func(x, y *machine) int { return strings.Compare(x.name, y.name) })
	return list
}

// add enters a VM of the node itself, unless one of that name is there, which is
// returned.
func (a *agent) add(vm *nodev1.VirtualMachine) (m *machine, added bool) {
	m, done := a.enterOwn(vm)
	if done == nil {
		return m, false
	}
	done()
	return m, true
}

// enterOwn is enter for a VM of the node itself.
func (a *agent) enterOwn(vm *nodev1.VirtualMachine) (m *machine, done func()) {
	name := vm.GetSpec().GetName()
	return a.enter(name, ownHome{a, name}, vm)
}

// enter is add, with a new VM taken until done is called: nobody gets hold of
// one that may be taken back. done is nil if the VM was there.
func (a *agent) enter(name string, h home, vm *nodev1.VirtualMachine) (m *machine, done func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if there, ok := a.machines[name]; ok {
		return there, nil
	}
	m = newMachine(name, h, vm, a.hub, a.log)
	m.slot <- struct{}{}
	a.machines[name] = m
	return m, func() { <-m.slot }
}

// drop forgets a VM.
func (a *agent) drop(m *machine) {
	m.leave()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.machines[m.name] == m {
		delete(a.machines, m.name)
	}
}
