package metrics

import (
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	poolv1 "github.com/vmlet/vmlet/api/pool/v1beta1"
)

func poolGauge() Metric {
	return gauge("vmlet_virtualmachinepool_replicas",
		"Number of VirtualMachines of a VirtualMachinePool, by state: wanted by its spec, current, ready, updated to its newest template, available (both), preserved after they were scaled in, standby-wanted by its spec, standby, and standby-ready to be taken at a scale-out. Only the leading vmlet-controller has it.",
		"namespace", "pool", "state")
}

func poolProblemGauge() Metric {
	return gauge("vmlet_virtualmachinepool_problem",
		"Whether a VirtualMachinePool has a problem (1) or not (0): stalled, as its update makes no progress; failing, as VirtualMachines fail to start or can't be made; healing, as one has been replaced three times in a row and has not become ready. Only the leading vmlet-controller has it.",
		"namespace", "pool", "problem")
}

// inVain is how many replacements in a row of one VM are a problem.
const inVain = 3

// problems are a pool's.
func problems(s *poolv1.VirtualMachinePoolStatus) map[string]bool {
	return map[string]bool{
		"stalled": meta.IsStatusConditionFalse(s.Conditions, poolv1.ConditionProgressing),
		"failing": meta.IsStatusConditionTrue(s.Conditions, poolv1.ConditionReplicaFailure),
		"healing": slices.ContainsFunc(s.Healed, func(h poolv1.HealedMember) bool { return h.Count >= inVain }),
	}
}

// pools sends how many VMs pools have.
func (c *Collector) pools(put func(Metric, float64, ...string)) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapePatience)
	defer cancel()
	var all poolv1.VirtualMachinePoolList
	if err := c.Objects.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return
	}
	m, problem := poolGauge(), poolProblemGauge()
	for i := range all.Items {
		p := &all.Items[i]
		wanted := int32(1)
		if p.Spec.Replicas != nil {
			wanted = *p.Spec.Replicas
		}
		standby := int32(0)
		if p.Spec.Standby != nil {
			standby = p.Spec.Standby.Replicas
		}
		s := &p.Status
		for state, n := range map[string]int32{
			"wanted": wanted, "current": s.Replicas, "ready": s.ReadyReplicas, "updated": s.UpdatedReplicas,
			"available": s.AvailableReplicas, "preserved": s.PreservedReplicas,
			"standby-wanted": standby, "standby": s.StandbyReplicas, "standby-ready": s.ReadyStandbyReplicas,
		} {
			put(m, float64(n), p.Namespace, p.Name, state)
		}
		for name, is := range problems(s) {
			put(problem, oneIf(is), p.Namespace, p.Name, name)
		}
	}
}

// poolCounters are Pools' metrics. The names are those that KubeVirt has proposed.
func poolCounters() []Metric {
	of := func(name, help string) Metric {
		return Metric{Name: name, Help: help, Labels: []string{"namespace", "pool"}, Type: "counter"}
	}
	return []Metric{
		of("kubevirt_vmpool_vms_started_total", "Starts of VirtualMachines of a VirtualMachinePool. The leading vmlet-controller counts them."),
		of("kubevirt_vmpool_vms_stopped_total", "Ends of VirtualMachines of a VirtualMachinePool that ran. The leading vmlet-controller counts them."),
	}
}

// Pools counts starts and stops of pools' VMs, as far as their status shows it while this replica leads. It is a
// [prometheus.Collector]. What it counted of a pool goes with the pool.
type Pools struct {
	leads            func() bool
	started, stopped *prometheus.CounterVec
}

// NewPools returns a counter that counts while leads says so.
func NewPools(leads func() bool) *Pools {
	m := poolCounters()
	counter := func(m Metric) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.Name, Help: m.Help}, m.Labels)
	}
	return &Pools{leads: leads, started: counter(m[0]), stopped: counter(m[1])}
}

// Describe sends all metrics that there can be.
func (p *Pools) Describe(to chan<- *prometheus.Desc) {
	p.started.Describe(to)
	p.stopped.Describe(to)
}

// Collect sends what was counted.
func (p *Pools) Collect(to chan<- prometheus.Metric) {
	p.started.Collect(to)
	p.stopped.Collect(to)
}

// Changed counts what happened to a VirtualMachine between two versions of it. after is nil if it is gone.
func (p *Pools) Changed(before, after *kubevirtv1.VirtualMachine) {
	owner := metav1.GetControllerOf(before)
	if owner == nil || owner.Kind != poolv1.Kind || !p.leads() {
		return
	}
	was, is := before.Status.Created, after != nil && after.UID == before.UID && after.Status.Created
	switch {
	case is && !was:
		p.started.WithLabelValues(before.Namespace, owner.Name).Inc()
	case was && !is:
		p.stopped.WithLabelValues(before.Namespace, owner.Name).Inc()
	}
}

// Gone drops what was counted of a pool that is gone.
func (p *Pools) Gone(namespace, pool string) {
	p.started.DeleteLabelValues(namespace, pool)
	p.stopped.DeleteLabelValues(namespace, pool)
}
