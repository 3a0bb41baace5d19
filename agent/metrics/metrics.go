package metrics

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/vmlet/vmlet/agent/usage"
)

const (
	// maxScrapes is how many may be answered at a time; those that come while
	// metrics are collected get the same.
	maxScrapes = 8
	// scrapePatience is how long one may take.
	scrapePatience = 20 * time.Second
)

// Metrics are all of the agent's. They may be gathered concurrently.
type Metrics struct {
	registry *prometheus.Registry
	samplers *samplers
	log      *slog.Logger
	node     nodeMetrics
	vm       vmMetrics
}

// New makes the metrics of these sources. VMMs are asked until ctx ends; then Wait
// returns when none is asked any more.
func New(ctx context.Context, s Sources) *Metrics {
	if s.Log == nil {
		s.Log = slog.Default()
	}
	m := &Metrics{
		registry: prometheus.NewRegistry(), samplers: newSamplers(ctx, s.Log), log: s.Log,
		node: newNodeMetrics(), vm: newVMMetrics(),
	}
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&nodeCollector{sources: s, metrics: m.node, samplers: m.samplers},
		&vmCollector{sources: s, metrics: m.vm, samplers: m.samplers, threads: usage.NewThreads()},
	)
	return m
}

// Wait returns when no VMM is asked any more.
func (m *Metrics) Wait() { m.samplers.wait() }

// All are vmlet's metrics. Those of the Go runtime and of the process come beside
// them, and are client_golang's.
func (m *Metrics) All() []Metric { return slices.Concat(m.node.all, m.vm.all) }

// Gather collects all metrics.
func (m *Metrics) Gather() prometheus.Gatherer { return m.registry }

// Handler answers scrapes.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog: errorLog{m.log}, ErrorHandling: promhttp.ContinueOnError,
		MaxRequestsInFlight: maxScrapes, Timeout: scrapePatience, CoalesceGather: true,
	})
}

// errorLog puts promhttp's errors into the agent's log.
type errorLog struct{ log *slog.Logger }

func (l errorLog) Println(v ...any) {
	var errs []error
	for _, x := range v {
		if err, is := x.(error); is {
			errs = append(errs, err)
		}
	}
	l.log.Warn("metrics", "error", errors.Join(errs...))
}
