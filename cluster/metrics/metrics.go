// Package metrics has the metrics of vmlet-controller and vmlet-api that are vmlet's own. Those of
// controller-runtime and of Go's runtime are served with them. Start reading at Collector.
package metrics

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// Metric is a metric's name, help and labels, and its type: gauge, counter or histogram.
type Metric struct {
	Name, Help string
	Labels     []string
	Type       string

	desc *prometheus.Desc
}

func gauge(name, help string, labels ...string) Metric {
	return Metric{name, help, labels, "gauge", prometheus.NewDesc(name, help, labels, nil)}
}

// own are the metrics by what they are about.
type own struct{ machines, instances, vmms, streams, certificate Metric }

func newOwn() own {
	return own{
		machines: gauge("vmlet_virtualmachines",
			"Number of VirtualMachines, by their printableStatus. Only the leading vmlet-controller has it.", "status"),
		instances: gauge("vmlet_virtualmachineinstances",
			"Number of VirtualMachineInstances, by their phase. Only the leading vmlet-controller has it.", "phase"),
		vmms: gauge("vmlet_virtualmachineinstances_running",
			"Number of VirtualMachineInstances that run, by what runs them. Only the leading vmlet-controller has it.", "vmm", "version", "hypervisor"),
		streams: gauge("vmlet_agent_stream_up",
			"Whether vmlet-controller's stream to the agent of a node is up and complete: 1, or 0. There is one for each node that has VMs' pods, at the leading vmlet-controller.", "node"),
		certificate: gauge("vmlet_certificate_expiration_timestamp_seconds",
			"When the program's certificate ends, in seconds since 1970. It is missing while there is none."),
	}
}

// gauges are the metrics of a Collector.
func gauges() []Metric {
	m := newOwn()
	return append([]Metric{m.machines, m.instances, m.vmms, poolGauge(), poolProblemGauge(), m.streams, m.certificate}, newHibernationGauges().all()...)
}

// All are the metrics of both programs.
func All() []Metric {
	return slices.Concat(gauges(), hibernationCounters(), poolCounters(), []Metric{phaseHistogram()})
}

// Collector sends the metrics of a program. It is a [prometheus.Collector].
type Collector struct {
	// Certificate returns when the program's certificate ends; zero: there is none.
	Certificate func() time.Time
	// Leads, if set, reports whether this replica leads.
	Leads func() bool
	// Objects is a cache of VirtualMachines, instances, pools and claims, and Streams returns whether the
	// stream to each node's agent is up. They are called while this replica leads.
	Objects client.Reader
	Streams func() map[string]bool
}

// scrapePatience bounds reading the cache, which waits for the API server until it is filled.
const scrapePatience = 5 * time.Second

// Describe sends all metrics that there can be.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range gauges() {
		to <- m.desc
	}
}

// Collect sends what is known. What is unknown is missing, not 0.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	m := newOwn()
	put := func(m Metric, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, value, labels...)
	}
	if end := c.Certificate(); !end.IsZero() {
		put(m.certificate, float64(end.Unix()))
	}
	if c.Leads == nil || !c.Leads() {
		return
	}
	c.machines(put, m.machines)
	c.pools(put)
	phases, vmms := c.instances()
	for phase, n := range phases {
		put(m.instances, float64(n), phase)
	}
	for vmm, n := range vmms {
		put(m.vmms, float64(n), vmm.Name, vmm.Version, vmm.Hypervisor)
	}
	for node, up := range c.Streams() {
		put(m.streams, oneIf(up), node)
	}
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// machines counts VirtualMachines by their printable status, and sends what they say of their
// hibernations.
func (c *Collector) machines(put func(Metric, float64, ...string), m Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapePatience)
	defer cancel()
	var all kubevirtv1.VirtualMachineList
	if err := c.Objects.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return
	}
	counts := make(map[string]int)
	for n := range all.Items {
		counts[string(all.Items[n].Status.PrintableStatus)]++
	}
	for status, n := range counts {
		put(m, float64(n), status)
	}
	c.hibernation(ctx, put, all.Items)
}

// instances counts VirtualMachineInstances by their phase, and those that run by what runs them. One that no controller has seen yet
// is Pending to its users.
func (c *Collector) instances() (phases map[string]int, vmms map[kubevirtv1.VMMStatus]int) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapePatience)
	defer cancel()
	var all kubevirtv1.VirtualMachineInstanceList
	if err := c.Objects.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil
	}
	phases, vmms = make(map[string]int), make(map[kubevirtv1.VMMStatus]int)
	for n := range all.Items {
		s := &all.Items[n].Status
		phase := s.Phase
		if phase == "" {
			phase = kubevirtv1.PhasePending
		}
		phases[string(phase)]++
		if phase == kubevirtv1.PhaseRunning && s.VMM != nil {
			vmms[*s.VMM]++
		}
	}
	return phases, vmms
}
