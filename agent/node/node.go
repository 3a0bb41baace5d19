// Package node knows what this machine can run VMs with: its hypervisors, its VMMs and the
// labels that follow from them. It must not know VMs. Start reading at Node.
package node

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/capabilities"
	"github.com/vmlet/vmlet/hypervisor"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/overhead"
	"github.com/vmlet/vmlet/vmm/standard"
	"google.golang.org/grpc/codes"
)

// Node is what this machine can run VMs with.
type Node struct {
	// Keeper has the capabilities document, and hypervisors answer from it.
	Keeper      *capabilities.Keeper
	Hypervisors *hypervisor.Local
	VMMs        []vmm.VMM // the preferred one first
	Labels      LabelFile

	// ReadHost reads the machine as it is now, below roots.
	ReadHost func() *sysfs.Host
	Roots    sysfs.Roots
}

// New makes the node of these sources, which keeps in stateDir what must outlive the agent.
func New(s capabilities.Sources, stateDir string) (*Node, error) {
	n := &Node{Keeper: capabilities.NewKeeper(s), VMMs: runnable(s.VMMs), Labels: newLabelFile(stateDir), Roots: s.Roots}
	n.ReadHost = func() *sysfs.Host { return sysfs.Read(s.Roots) }
	var err error
	n.Hypervisors, err = n.Keeper.Hypervisors()
	return n, err
}

// runnable are those that an agent can start VMs with; others are only asked.
func runnable(programs []vmm.Program) []vmm.VMM {
	var out []vmm.VMM
	for _, p := range programs {
		if v, drives := p.(vmm.VMM); drives {
			out = append(out, v)
		}
	}
	return out
}

// Watch asks everything once, so that the first VM need not wait for it, and
// again when the machine changes, until ctx ends. What changes is logged.
func (n *Node) Watch(ctx context.Context, log *slog.Logger) {
	changes, stop := n.Keeper.Subscribe()
	defer stop()
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { n.Keeper.Watch(ctx) })
	for _, v := range n.VMMs {
		// An error is in the document, too. What is kept of the document is
		// less than what a VM's start needs to know of a VMM.
		watching.Go(func() { _, _ = v.Info(ctx) })
	}
	var before *capabilitiesv1.Capabilities
	for {
		select {
		case <-ctx.Done():
			return
		case doc := <-changes:
			logChanges(log, before, doc)
			before = doc
		}
	}
}

// logChanges logs hypervisors and VMMs whose state has changed.
func logChanges(log *slog.Logger, before, now *capabilitiesv1.Capabilities) {
	said := map[string]bool{}
	hypervisor := func(h *capabilitiesv1.HypervisorCapabilities) string {
		return fmt.Sprint("hypervisor ", h.GetName(), h.GetState(), h.GetReason())
	}
	vmm := func(v *capabilitiesv1.VmmCapabilities) string {
		return fmt.Sprint("VMM ", v.GetName(), v.GetState(), v.GetReason(), v.GetVersion())
	}
	for _, h := range before.GetHypervisors() {
		said[hypervisor(h)] = true
	}
	for _, v := range before.GetVmms() {
		said[vmm(v)] = true
	}
	for _, h := range now.GetHypervisors() {
		if !said[hypervisor(h)] {
			log.Info("hypervisor", "name", h.GetName(), "state", h.GetState().Word(), "reason", h.GetReason())
		}
	}
	for _, v := range now.GetVmms() {
		switch {
		case said[vmm(v)]:
		case v.GetState() == capabilitiesv1.State_STATE_WORKS:
			log.Info("VMM", "name", v.GetName(), "version", v.GetVersion(), "binary", v.GetBinary())
		case v.GetName() == now.GetDefaultVmm():
			log.Warn("no VM can be started with this VMM", "vmm", v.GetName(), "error", v.GetReason(), "remedy", v.GetRemedy())
		default:
			log.Info("VMM", "name", v.GetName(), "state", v.GetState().Word(), "reason", v.GetReason())
		}
	}
}

// Names are those that specifications may have, whether this node has what they stand for or
// not.
func (n *Node) Names() spec.Names {
	names := standard.Registry().Names()
	for _, v := range n.VMMs {
		if !slices.Contains(names, v.Name()) { // one with a driver of its own
			names = append(names, v.Name())
		}
	}
	return spec.Names{Hypervisors: n.Hypervisors.Names(), VMMs: names}
}

// VMMNames are those of the VMMs that VMs are run with, the preferred one first.
func (n *Node) VMMNames() ([]string, error) {
	if len(n.VMMs) == 0 {
		return nil, fault.Errorf(codes.FailedPrecondition, "this agent has no VMM")
	}
	names := make([]string, len(n.VMMs))
	for i, v := range n.VMMs {
		names[i] = v.Name()
	}
	return names, nil
}

// DefaultVMM is the one that a VM gets which asks for nothing in particular.
func (n *Node) DefaultVMM(ctx context.Context) (vmm.VMM, error) {
	names, err := n.VMMNames()
	if err != nil {
		return nil, err
	}
	doc, err := n.Keeper.Document(ctx)
	if err != nil {
		return nil, err
	}
	if slices.Contains(names, doc.GetDefaultVmm()) {
		return n.VMM(doc.GetDefaultVmm())
	}
	return n.VMMs[0], nil
}

// VMM finds a VMM by its name.
func (n *Node) VMM(name string) (vmm.VMM, error) {
	names, err := n.VMMNames()
	if err != nil {
		return nil, err
	}
	i := slices.Index(names, name)
	if i < 0 {
		return nil, fault.Invalid("vmm", "%q is not on this node: choose auto or one of %v", name, names)
	}
	return n.VMMs[i], nil
}

// PodLimit is the memory limit that a container needs for a VM, in bytes. False: not known.
func (n *Node) PodLimit(s *specv1.VirtualMachineSpec, hypervisor, vmm string) (uint64, bool) {
	h, known := n.Hypervisors.Get(hypervisor)
	if !known {
		return 0, false
	}
	v, known := standard.Registry().Get(vmm)
	if !known {
		return 0, false
	}
	need, err := overhead.Of(overhead.Request{Spec: s, Hypervisor: h, VMM: v, Arch: runtime.GOARCH})
	if err != nil {
		return 0, false
	}
	return need.PodLimit(), true
}
