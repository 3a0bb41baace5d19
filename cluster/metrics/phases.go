package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
)

// phaseHistogram is Phases' metric. The name is KubeVirt's, which has no labels of pools.
func phaseHistogram() Metric {
	return Metric{
		Name: "kubevirt_vmi_phase_transition_time_from_creation_seconds",
		Help: "Seconds from the creation of a VirtualMachineInstance until it was in a phase, by the VirtualMachinePool that its VirtualMachine is of; namespace and pool are empty for all others. The leading vmlet-controller measures it.",
		Type: "histogram", Labels: []string{"phase", "namespace", "pool"},
	}
}

// Phases measures how long instances take to each phase, as far as their status shows it while this replica leads. It is
// a [prometheus.Collector]. What it measured of a pool goes with the pool.
type Phases struct {
	*prometheus.HistogramVec
	leads func() bool
}

// NewPhases returns one that measures while leads says so.
func NewPhases(leads func() bool) *Phases {
	m := phaseHistogram()
	return &Phases{leads: leads, HistogramVec: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: m.Name, Help: m.Help, Buckets: prometheus.ExponentialBuckets(0.5, 2, 12), // up to 17 minutes
	}, m.Labels)}
}

// Changed measures the phases that an instance entered between two versions of it.
func (p *Phases) Changed(before, after *kubevirtv1.VirtualMachineInstance) {
	if before.UID != after.UID || !p.leads() {
		return
	}
	known := make(map[kubevirtv1.Phase]bool, len(before.Status.PhaseTransitionTimestamps))
	for _, t := range before.Status.PhaseTransitionTimestamps {
		known[t.Phase] = true
	}
	for _, t := range after.Status.PhaseTransitionTimestamps {
		if !known[t.Phase] {
			namespace, pool := poolOf(after)
			took := t.PhaseTransitionTimestamp.Sub(after.CreationTimestamp.Time)
			p.WithLabelValues(string(t.Phase), namespace, pool).Observe(max(took.Seconds(), 0))
		}
	}
}

// poolOf is the pool of an instance whose name is a member's; empty: it is of none.
func poolOf(vmi *kubevirtv1.VirtualMachineInstance) (namespace, pool string) {
	index, of := vmi.Labels[contract.LabelPoolIndex], vmi.Labels[contract.LabelPool]
	pool, is := strings.CutSuffix(vmi.Name, "-"+index)
	if of == "" || index == "" || !is {
		return "", ""
	}
	return vmi.Namespace, pool
}

// Gone drops what was measured of a pool that is gone.
func (p *Phases) Gone(namespace, pool string) {
	p.DeletePartialMatch(prometheus.Labels{"namespace": namespace, "pool": pool})
}
