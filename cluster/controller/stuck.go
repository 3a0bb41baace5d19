package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// longestReconciliation is the metric of controller-runtime's queues that says how long the
// oldest of the reconciliations under way has taken, in seconds, by controller.
const longestReconciliation = "workqueue_longest_running_processor_seconds"

// stuckAfter is longer than any reconciliation takes: those of VMs and instances are ended after two
// minutes, unless they don't heed it, and of the others each call to the API server ends within one.
const stuckAfter = 10 * time.Minute

// notStuck fails when a reconciliation does not end: only a new process gets its worker back.
func notStuck(from prometheus.Gatherer) func(context.Context) error {
	return func(context.Context) error {
		families, err := from.Gather()
		if err != nil {
			return nil // some other metric
		}
		for _, f := range families {
			if f.GetName() != longestReconciliation {
				continue
			}
			for _, m := range f.GetMetric() {
				took := time.Duration(m.GetGauge().GetValue()) * time.Second
				if took < stuckAfter {
					continue
				}
				for _, l := range m.GetLabel() {
					if l.GetName() == "name" {
						return fmt.Errorf("a reconciliation of the controller %s has not ended for %s", l.GetValue(), took)
					}
				}
			}
		}
		return nil
	}
}
