package agent

import (
	"context"

	"github.com/vmlet/vmlet/agent/metrics"
	"github.com/vmlet/vmlet/agent/nodeobject"
	"github.com/vmlet/vmlet/agent/vm"
	"github.com/vmlet/vmlet/deviceplugin"
	"github.com/vmlet/vmlet/hypervisor"
)

// newMetrics makes the metrics of this agent. VMMs are asked until ctx ends.
func (p *program) newMetrics(ctx context.Context) *metrics.Metrics {
	node, err := p.nodeName()
	if err != nil {
		p.cfg.Log.Warn("the node's name is not known: metrics have none", "error", err)
	}
	s := metrics.Sources{
		Node: node, Version: p.cfg.Version, Log: p.cfg.Log,
		VMs: p.measured, Document: p.node.Keeper.Latest, Probes: p.node.Keeper.Probes, RAM: p.ram,
		Saves:    func() metrics.Images { return imagesOf(p.vms.Saver.Saves()) },
		Restores: func() metrics.Images { return imagesOf(p.vms.Launcher.Restores()) },
	}
	if *p.cfg.DevicePlugins.Enabled {
		s.Devices = func() []deviceplugin.Status {
			all, _ := p.offers.status()
			return all
		}
	}
	if p.published != nil && p.published.publisher != nil {
		s.Outcomes = func() []metrics.Outcome { return outcomesOf(p.published.publisher.Outcomes()) }
	}
	return metrics.New(ctx, s)
}

// measured are the VMs as the metrics want them.
func (p *program) measured() []metrics.VM {
	var all []metrics.VM
	for _, m := range p.vms.All() {
		record := m.Snapshot()
		vm := metrics.VM{
			Name: m.Name(), Record: record, Panics: m.Panics(),
			Threads: p.threads(record.GetStatus().GetHypervisor()), Sampler: m.Sampler(),
		}
		if pod := record.GetStatus().GetPod(); pod != nil {
			vm.Namespace, vm.Name, vm.Pod = pod.GetNamespace(), pod.GetName(), pod.GetName()
		}
		all = append(all, vm)
	}
	return all
}

func imagesOf(s vm.ImageStats) metrics.Images {
	return metrics.Images{Outcomes: s.Outcomes, Succeeded: s.Outcomes[vm.Succeeded], Duration: s.Duration, Bytes: s.Bytes}
}

// threads is how a hypervisor's are called, by itself or by the configuration: VMs of several VMMs may
// run under it, and a stack's profile names those of one.
func (p *program) threads(name string) hypervisor.ThreadNames {
	var names hypervisor.ThreadNames
	if h, ok := p.node.Hypervisors.Get(name); ok {
		if namer, ok := hypervisor.As[hypervisor.ThreadNamer](h); ok {
			names = namer.Threads()
		}
	}
	if pattern := p.cfg.VirtualizationProfile.Components.VCPURegex; pattern != "" && name != hypervisor.NameEmulation {
		if names.VCPU != "" {
			pattern = "(?:" + names.VCPU + ")|(?:" + pattern + ")"
		}
		names.VCPU = pattern
	}
	return names
}

// ram is the mount for guests' memory, where there is one.
func (p *program) ram() (metrics.RAM, bool) {
	h, ok := p.host.(interface {
		MemoryUsage() (size, used uint64, ok bool)
	})
	if !ok {
		return metrics.RAM{}, false
	}
	size, used, ok := h.MemoryUsage()
	return metrics.RAM{Size: size, Used: used}, ok
}

// outcomesOf are those of the Node object, in words that stay.
func outcomesOf(o nodeobject.Outcomes) []metrics.Outcome {
	return []metrics.Outcome{
		{What: "labels", Outcome: "written", Count: o.Applies},
		{What: "labels", Outcome: "unchanged", Count: o.NoChanges},
		{What: "labels", Outcome: "conflict", Count: o.Conflicts},
		{What: "labels", Outcome: "throttled", Count: o.Throttled},
		{What: "labels", Outcome: "paused", Count: o.Pauses},
		{What: "labels", Outcome: "failed", Count: o.Errors},
		{What: "lease", Outcome: "renewed", Count: o.LeaseRenewals},
		{What: "lease", Outcome: "failed", Count: o.LeaseErrors},
	}
}
