// Package metrics has the autopilot's own metrics. Those of controller-runtime and of Go's runtime
// are served with them. Start reading at Metrics.
package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metric is a metric's name, help and labels, and its type: gauge, counter or histogram.
type Metric struct {
	Name, Help string
	Labels     []string
	Type       string
}

const prefix = "kubevirt_autopilot_"

// gauges are those that follow from the assets' states. Only the leader has any.
type gauges struct{ compliance, paused, customization, missing, optedIn, tombstone, renderFailed Metric }

func newGauges() gauges {
	gauge := func(name, help string, labels ...string) Metric {
		return Metric{prefix + name, help + " Only the leading vmlet-autopilot has it, and only while it is on.", labels, "gauge"}
	}
	object, crd := []string{"kind", "name", "namespace"}, []string{"group", "version", "kind"}
	return gauges{
		compliance: gauge("compliance_status",
			"Whether an object is as the autopilot wants it: 1, or 0 if it could not be applied, waits for its turn or is paused. Objects that the autopilot leaves alone have none.", object...),
		paused:        gauge("paused_resources", "Whether an object is paused after an edit war: 1, or 0.", object...),
		customization: gauge("customization_info", "1 for each way in which a user has an object otherwise: patch, ignore, unmanaged.", append(object, "type")...),
		missing:       gauge("missing_dependency", "Whether the kind that an asset needs is missing: 1, or 0. Only assets that are wanted count.", crd...),
		optedIn:       gauge("dependency_opted_in", "1 for each kind that an asset needs whose conditions hold.", crd...),
		tombstone:     gauge("tombstone_status", "An obsolete object: 0 if it is gone, -1 if it could not be deleted, -2 if it is kept as it lacks the autopilot's label.", object...),
		renderFailed:  gauge("render_failed", "1 for each asset whose template fails.", "asset"),
	}
}

func (g gauges) all() []Metric {
	return []Metric{g.compliance, g.paused, g.customization, g.missing, g.optedIn, g.tombstone, g.renderFailed}
}

func counters() []Metric {
	counter := func(name, help string, labels ...string) Metric {
		return Metric{prefix + name, help, labels, "counter"}
	}
	return []Metric{
		counter("asset_reconcile_total", "How often an asset was looked at.", "asset"),
		counter("asset_reconcile_errors_total", "How often an asset could not be rendered, compared or applied.", "asset"),
		counter("asset_apply_total", "How often an asset's object was applied.", "asset"),
		counter("drift_detected_total", "How often an object was found that somebody else had changed.", "asset"),
		counter("throttle_delayed_total", "How often an object was due to be applied, and had to wait as it had been applied too often.", "asset"),
		counter("thrashing_total", "How often an object was paused after an edit war.", "kind", "name", "namespace"),
		{prefix + "reconcile_duration_seconds", "Seconds that an asset took, from its rendering to its apply.", []string{"kind", "name", "namespace"}, "histogram"},
	}
}

// All are the autopilot's metrics.
func All() []Metric { return append(newGauges().all(), counters()...) }

// Kind is one that an asset needs.
type Kind struct{ Group, Version, Kind string }

// Asset is what the gauges say of one.
type Asset struct {
	Kind, Name, Namespace string
	// Known is set if Compliant and Paused are to be shown, which are about the object.
	Known, Compliant, Paused bool
	Customizations           []string
	RenderFailed             bool
	// Wanted is set if Needs are to be shown: the kinds, and whether each is missing.
	Wanted bool
	Needs  map[Kind]bool
}

// Tombstone is what the gauges say of one.
type Tombstone struct {
	Kind, Name, Namespace string
	Status                float64
}

// Metrics are all of a process. It is a [prometheus.Collector], and may be used concurrently.
type Metrics struct {
	Reconciles, Errors, Applies, Drifts, Throttles, Thrashing *prometheus.CounterVec
	Duration                                                  *prometheus.HistogramVec

	mu         sync.Mutex
	assets     map[string]Asset
	tombstones map[string]Tombstone
}

// New returns metrics that say nothing yet.
func New() *Metrics {
	all := counters()
	vec := func(i int) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: all[i].Name, Help: all[i].Help}, all[i].Labels)
	}
	last := all[len(all)-1]
	return &Metrics{
		Reconciles: vec(0), Errors: vec(1), Applies: vec(2), Drifts: vec(3), Throttles: vec(4), Thrashing: vec(5),
		Duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: last.Name, Help: last.Help, Buckets: []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, last.Labels),
		assets: make(map[string]Asset), tombstones: make(map[string]Tombstone),
	}
}

// Set replaces what the gauges say of an asset; nil: nothing.
func (m *Metrics) Set(name string, a *Asset) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.assets[name]
	delete(m.assets, name)
	if a != nil {
		m.assets[name] = *a
	}
	if was.Kind != "" && (a == nil || a.Kind != was.Kind || a.Name != was.Name || a.Namespace != was.Namespace) {
		m.Duration.DeleteLabelValues(was.Kind, was.Name, was.Namespace)
	}
}

// Bury replaces what the gauges say of a tombstone.
func (m *Metrics) Bury(name string, t Tombstone) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tombstones[name] = t
}

// Clear removes all gauges: the autopilot is off.
func (m *Metrics) Clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.assets)
	clear(m.tombstones)
	m.Duration.Reset()
}

// Observe adds to the duration of an object's reconciliation.
func (m *Metrics) Observe(kind, name, namespace string, d time.Duration) {
	m.Duration.WithLabelValues(kind, name, namespace).Observe(d.Seconds())
}

func (m *Metrics) parts() []prometheus.Collector {
	return []prometheus.Collector{m.Reconciles, m.Errors, m.Applies, m.Drifts, m.Throttles, m.Thrashing, m.Duration}
}

// Describe sends all metrics that there can be.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, g := range newGauges().all() {
		to <- g.desc()
	}
	for _, p := range m.parts() {
		p.Describe(to)
	}
}

func (m Metric) desc() *prometheus.Desc { return prometheus.NewDesc(m.Name, m.Help, m.Labels, nil) }

// Collect sends what is known.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	for _, p := range m.parts() {
		p.Collect(to)
	}
	g := newGauges()
	put := func(of Metric, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(of.desc(), prometheus.GaugeValue, value, labels...)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	missing := make(map[Kind]bool)
	for name, a := range m.assets {
		if a.Known {
			put(g.compliance, number(a.Compliant), a.Kind, a.Name, a.Namespace)
			put(g.paused, number(a.Paused), a.Kind, a.Name, a.Namespace)
		}
		for _, c := range a.Customizations {
			put(g.customization, 1, a.Kind, a.Name, a.Namespace, c)
		}
		if a.RenderFailed {
			put(g.renderFailed, 1, name)
		}
		if a.Wanted {
			for kind, is := range a.Needs {
				missing[kind] = missing[kind] || is
			}
		}
	}
	for kind, is := range missing { // several assets may need one
		put(g.missing, number(is), kind.Group, kind.Version, kind.Kind)
		put(g.optedIn, 1, kind.Group, kind.Version, kind.Kind)
	}
	for _, t := range m.tombstones {
		put(g.tombstone, t.Status, t.Kind, t.Name, t.Namespace)
	}
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
