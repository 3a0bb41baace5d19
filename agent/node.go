package agent

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/capabilities"
	"github.com/vmlet/vmlet/hypervisor"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/vmm"
	"google.golang.org/grpc/codes"
)

// node is what this machine can run VMs with.
type node struct {
	// keeper has the capabilities document, and hypervisors answer from it.
	keeper      *capabilities.Keeper
	hypervisors *hypervisor.Registry
	vmms        []vmm.VMM // the preferred one first
	labels      labelFile

	// readHost reads the machine as it is now, below roots.
	readHost func() *sysfs.Host
	roots    sysfs.Roots
}

func newNode(s capabilities.Sources, stateDir string) (*node, error) {
	n := &node{keeper: capabilities.NewKeeper(s), vmms: runnable(s.VMMs), labels: newLabelFile(stateDir), roots: s.Roots}
	n.readHost = func() *sysfs.Host { return sysfs.Read(s.Roots) }
	var err error
	n.hypervisors, err = n.keeper.Hypervisors()
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

// watch asks everything once, so that the first VM need not wait for it, and
// again when the machine changes, until ctx ends. What changes is logged.
func (n *node) watch(ctx context.Context, log *slog.Logger) {
	changes, stop := n.keeper.Subscribe()
	defer stop()
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { n.keeper.Watch(ctx) })
	for _, v := range n.vmms {
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

// logChanges logs hypervisors and VMMs of which something else is said than before.
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
			log.Info("hypervisor", "name", h.GetName(), "state", h.GetState(), "reason", h.GetReason())
		}
	}
	for _, v := range now.GetVmms() {
		switch {
		case said[vmm(v)]:
		case v.GetState() == capabilities.StateWorks:
			log.Info("VMM", "name", v.GetName(), "version", v.GetVersion(), "binary", v.GetBinary())
		case v.GetName() == now.GetDefaultVmm():
			log.Warn("no VM can be started with this VMM", "vmm", v.GetName(), "error", v.GetReason(), "remedy", v.GetRemedy())
		default:
			log.Info("VMM", "name", v.GetName(), "state", v.GetState(), "reason", v.GetReason())
		}
	}
}

// vmmNames are those of the VMMs that VMs are run with, the preferred one first.
func (n *node) vmmNames() ([]string, error) {
	if len(n.vmms) == 0 {
		return nil, fault.Errorf(codes.FailedPrecondition, "this agent has no VMM")
	}
	names := make([]string, len(n.vmms))
	for i, v := range n.vmms {
		names[i] = v.Name()
	}
	return names, nil
}

// defaultVMM is the one that a VM gets which asks for nothing in particular.
func (n *node) defaultVMM(ctx context.Context) (vmm.VMM, error) {
	names, err := n.vmmNames()
	if err != nil {
		return nil, err
	}
	doc, err := n.keeper.Document(ctx)
	if err != nil {
		return nil, err
	}
	if slices.Contains(names, doc.GetDefaultVmm()) {
		return n.vmm(doc.GetDefaultVmm())
	}
	return n.vmms[0], nil
}

// vmm finds a VMM by its name.
func (n *node) vmm(name string) (vmm.VMM, error) {
	names, err := n.vmmNames()
	if err != nil {
		return nil, err
	}
	i := slices.Index(names, name)
	if i < 0 {
		return nil, fault.Invalid("vmm", "%q is not to be had on this node: choose auto or one of %v", name, names)
	}
	return n.vmms[i], nil
}
