package metrics

import (
	"runtime"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/vmlet/vmlet/agent/lifecycle"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/sysfs"
)

// nodeCollector collects the metrics of the node and the agent.
type nodeCollector struct {
	sources  Sources
	metrics  nodeMetrics
	samplers *samplers
}

func (c *nodeCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.metrics.all {
		ch <- m.desc
	}
}

func (c *nodeCollector) Collect(ch chan<- prometheus.Metric) {
	s := sink(ch)
	s.put(c.metrics.build, 1, c.sources.Version, runtime.Version(), runtime.GOARCH)
	c.document(s)
	c.machines(s)
	c.devicePlugins(s)
	c.probes(s)
	c.memory(s)
	answered, unanswered := c.samplers.counts()
	s.put(c.metrics.samples, float64(answered), "answered")
	s.put(c.metrics.samples, float64(unanswered), "unanswered")
	c.images(s)
	if c.sources.Outcomes != nil {
		for _, o := range c.sources.Outcomes() {
			s.put(c.metrics.outcomes, float64(o.Count), o.What, o.Outcome)
		}
	}
}

// document is what the node was found to be able to do the last time.
func (c *nodeCollector) document(s sink) {
	if c.sources.Document == nil {
		return
	}
	doc := c.sources.Document()
	if doc == nil {
		return
	}
	s.put(c.metrics.unknown, float64(len(doc.GetUnknown())))
	const works, degraded, unusable = capabilitiesv1.State_STATE_WORKS, capabilitiesv1.State_STATE_DEGRADED, capabilitiesv1.State_STATE_UNUSABLE
	for _, h := range doc.GetHypervisors() {
		for _, state := range []capabilitiesv1.State{works, degraded, unusable} {
			s.put(c.metrics.hypervisor, flag(h.GetState() == state), h.GetName(), state.Word())
		}
	}
	for _, v := range doc.GetVmms() {
		for _, state := range []capabilitiesv1.State{works, unusable} {
			s.put(c.metrics.vmmState, flag(v.GetState() == state), v.GetName(), state.Word())
		}
		if v.GetState() == works {
			s.put(c.metrics.vmmInfo, 1, v.GetName(), v.GetVersion())
		}
	}
}

// machines counts the VMs.
func (c *nodeCollector) machines(s sink) {
	type kind struct{ state, vmm string }
	counts := make(map[kind]int)
	// Those of the VMMs that there are have a number in each state, be it 0.
	if c.sources.Document != nil {
		for _, v := range c.sources.Document().GetVmms() {
			for _, state := range states() {
				counts[kind{state, labelValue(v.GetName())}] = 0
			}
		}
	}
	for _, vm := range c.sources.VMs() {
		status := vm.Record.GetStatus()
		name := status.GetVmm().GetName()
		if name == "" {
			name = "none"
		}
		counts[kind{lifecycle.Name(status.GetState()), labelValue(name)}]++
	}
	for k, n := range counts {
		s.put(c.metrics.vms, float64(n), k.state, k.vmm)
	}
}

// states are the words for all states of a VM.
func states() []string {
	var words []string
	for number := range nodev1.State_name {
		if state := nodev1.State(number); state != nodev1.State_STATE_UNSPECIFIED {
			words = append(words, lifecycle.Name(state))
		}
	}
	return words
}

func (c *nodeCollector) devicePlugins(s sink) {
	if c.sources.Devices == nil {
		return
	}
	for _, d := range c.sources.Devices() {
		s.put(c.metrics.devices, float64(d.Healthy), d.Resource, "healthy")
		s.put(c.metrics.devices, float64(d.Devices-d.Healthy), d.Resource, "unhealthy")
		s.put(c.metrics.registered, flag(d.Registered), d.Resource)
		s.put(c.metrics.registrations, float64(d.Registrations), d.Resource)
		s.put(c.metrics.allocations, float64(d.Allocations), d.Resource)
	}
}

func (c *nodeCollector) probes(s sink) {
	if c.sources.Probes == nil {
		return
	}
	p := c.sources.Probes()
	s.put(c.metrics.probes, float64(p.Complete), "complete")
	s.put(c.metrics.probes, float64(p.Partial), "partial")
	s.put(c.metrics.probes, float64(p.Failed), "failed")
	s.summary(c.metrics.probeDuration, p.Count(), p.Duration.Seconds())
}

// images are what was saved and restored.
func (c *nodeCollector) images(s sink) {
	if c.sources.Saves != nil {
		saves := c.sources.Saves()
		for outcome, n := range saves.Outcomes {
			s.put(c.metrics.saves, float64(n), outcome)
		}
		s.summary(c.metrics.saveDuration, saves.Succeeded, saves.Duration.Seconds())
		s.put(c.metrics.savedBytes, float64(saves.Bytes))
	}
	if c.sources.Restores != nil {
		restores := c.sources.Restores()
		for outcome, n := range restores.Outcomes {
			s.put(c.metrics.restores, float64(n), outcome)
		}
		s.summary(c.metrics.restoreDuration, restores.Succeeded, restores.Duration.Seconds())
	}
}

func (c *nodeCollector) memory(s sink) {
	for _, n := range sysfs.ReadHugePages(c.sources.Roots) {
		node := ""
		if n.Node >= 0 {
			node = strconv.Itoa(n.Node)
		}
		for _, p := range n.Pools {
			size := resource.NewQuantity(int64(p.PageSize), resource.BinarySI).String()
			s.put(c.metrics.hugePages, float64(p.Total), node, size)
			s.put(c.metrics.freeHugePages, float64(p.Free), node, size)
		}
	}
	if c.sources.RAM == nil {
		return
	}
	if ram, ok := c.sources.RAM(); ok {
		s.put(c.metrics.ramSize, float64(ram.Size))
		s.put(c.metrics.ramUsed, float64(ram.Used))
	}
}
