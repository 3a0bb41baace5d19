package nodeobject

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/vmlet/vmlet/agent/kube"
	"github.com/vmlet/vmlet/contract"
	corev1 "k8s.io/api/core/v1"
)

// reconciler brings the Node to what it should be, step by step. It is for one
// goroutine; what it needs of the world is given.
type reconciler struct {
	log       *slog.Logger
	heartbeat bool
	now       func() time.Time
	// write applies fields to the Node and returns it as it is then.
	write func(context.Context, *object, plan) (*object, error)
	// event writes an event about the Node.
	event func(kind, reason, text string)

	counters  *counters
	budget    *budget
	retry     *retry
	contested map[field]contest
	reported  map[string]string // by topic, the last report

	node     *object
	facts    *Facts // nil: not known yet
	standing Standing
	// written is what was written last, back what of that had to be put back.
	written map[field]string
	back    putBack
	// pausing: the annotation is still to be written; paused: the Node has it.
	pausing, paused bool
}

// contest is a write that was refused because a field is somebody else's.
type contest struct {
	now    string
	there  bool
	wanted string
}

func newReconciler(log *slog.Logger) *reconciler {
	return &reconciler{
		log: log, now: time.Now, counters: &counters{}, budget: newBudget(), retry: newRetry(),
		contested: map[field]contest{}, reported: map[string]string{}, event: func(string, string, string) {},
	}
}

// step does what is to be done now, and returns when to come again though nothing
// has changed; zero: not.
func (r *reconciler) step(ctx context.Context) time.Duration {
	if r.node == nil || r.facts == nil || !r.standing.Sure {
		return 0
	}
	r.reportSchedulable()
	r.reportStanding()
	if r.leaveAlone() {
		return 0
	}
	p := makePlan(&r.node.ObjectMeta, r.wish())
	r.reportConflicts(p.conflicts)
	if len(p.changes) == 0 {
		r.counters.update(func(o *Outcomes) { o.NoChanges++; o.Labels = labelsIn(p) })
		return 0
	}
	if wait := r.retry.wait(r.now()); wait > 0 {
		return wait
	}
	if r.pausing { // the last write is outside of the budget
		return r.apply(ctx, p)
	}
	verdict := r.budget.take(r.now())
	if verdict == exhausted && !r.putsBack(p) { // the facts change that often
		r.budget.waits, verdict = 0, throttled
	}
	switch verdict {
	case throttled:
		r.log.Warn("the Node is written too often: what is to be written waits", "fields", names(p.changes))
		r.counters.update(func(o *Outcomes) { o.Throttled++ })
	case exhausted:
		r.counters.update(func(o *Outcomes) { o.Throttled++; o.Pauses++ })
		r.pause(p)
		return r.step(ctx)
	case writeNow:
		return r.apply(ctx, p)
	}
	return r.budget.wait(r.now())
}

// leaveAlone reports whether nothing at all is to be written, and says so.
func (r *reconciler) leaveAlone() bool {
	_, skip := r.node.Annotations[contract.AnnotationSkip]
	_, paused := r.node.Annotations[contract.AnnotationPaused]
	_, skipLabels := r.node.Annotations[contract.AnnotationSkipLabels]
	skipLabels = skipLabels && !r.takenOver()
	r.counters.update(func(o *Outcomes) { o.Skipped, o.Paused = skip || skipLabels, paused || r.pausing })
	r.reportSkipping(skip, skipLabels)
	switch {
	case paused && !r.paused:
		r.log.Warn("the Node is left as it is until its annotation is taken away", "annotation", contract.AnnotationPaused)
		r.paused, r.pausing = true, false
		r.retry.reset()
	case !paused && r.paused:
		r.paused = false
		r.budget.reset()
		r.report("paused", corev1.EventTypeNormal, "VmletResumed", "labels are written again: the annotation "+contract.AnnotationPaused+" was taken away")
	}
	return skip || paused
}

// takenOver: a virt-handler is on the node and the agent works all the same. Then
// KubeVirt's annotation is meant for its labeller, and not for us.
func (r *reconciler) takenOver() bool { return r.standing.Reason != "" && !r.standing.Aside }

// pause gives up: somebody changes back what we write.
func (r *reconciler) pause(p plan) {
	r.pausing = true
	r.report("paused", corev1.EventTypeWarning, "VmletPaused", fmt.Sprintf(
		"something else changes back what vmlet writes to this Node (%s): it is left as it is. Find out who does it (kubectl get node %s -o yaml --show-managed-fields), then take the annotation %s away",
		names(p.changes), r.node.Name, contract.AnnotationPaused))
}

// wish is what the Node should have now.
func (r *reconciler) wish() wish {
	if r.pausing {
		since := r.now().UTC().Format(time.RFC3339)
		if at, there := r.node.Annotations[contract.AnnotationPaused]; there {
			since = at
		}
		pausedField := annotation(contract.AnnotationPaused)
		return wish{fields: map[field]string{pausedField: since}, frozen: func(f field) bool { return f != pausedField }}
	}
	known, unknown := r.facts.fields()
	_, skipLabels := r.node.Annotations[contract.AnnotationSkipLabels]
	skipLabels = skipLabels && !r.takenOver()
	w := wish{fields: known, contested: r.isContested, frozen: func(f field) bool {
		return unknown[f] || skipLabels && !isHealth(f) || r.standing.Aside && isKubeVirt(f)
	}}
	if r.heartbeat {
		w.carried = map[field]string{annotation(contract.AnnotationHeartbeat): r.now().UTC().Format(time.RFC3339)}
	}
	return w
}

// isContested: a field was refused, and nothing about it has changed since.
func (r *reconciler) isContested(f field, wanted string) bool {
	c, known := r.contested[f]
	if !known {
		return false
	}
	now, there := f.live(&r.node.ObjectMeta)
	if c == (contest{now, there, wanted}) {
		return true
	}
	delete(r.contested, f)
	return false
}

// apply writes a plan.
func (r *reconciler) apply(ctx context.Context, p plan) time.Duration {
	putsBack := r.putsBack(p)
	after, err := r.write(ctx, r.node, p)
	if err != nil {
		return r.failed(ctx, p, err)
	}
	now := r.now()
	if r.pausing {
		r.retry.failed(now, nil)
	} else {
		r.retry.reset()
	}
	r.counters.update(func(o *Outcomes) {
		o.Applies++
		o.LastApply, o.LastError, o.Labels = now, "", labelsIn(p)
	})
	r.written = p.fields
	if putsBack {
		r.reportPutBack(p, now)
	}
	delete(r.reported, "error")
	delete(r.reported, "refused")
	r.log.Info("the Node was written", "fields", names(p.changes))
	if newer(after, r.node) {
		r.node = after
	}
	return r.step(ctx) // there is nothing more to do, or somebody was faster
}

// failed takes note of an error, and says when to try again.
func (r *reconciler) failed(ctx context.Context, p plan, err error) time.Duration {
	now := r.now()
	if ctx.Err() != nil {
		return 0
	}
	for _, f := range conflictsOf(err) {
		was, there := f.live(&r.node.ObjectMeta)
		r.contested[f] = contest{was, there, p.fields[f]}
	}
	r.counters.update(func(o *Outcomes) { o.Errors++; o.LastError, o.LastErrorAt = err.Error(), now })
	wait := r.retry.failed(now, err)
	todo := kube.Remedy(err)
	if r.reported["error"] == "" {
		r.log.Warn("the Node can't be written: it is tried again", "error", err, "remedy", todo)
		r.reported["error"] = "said"
	}
	if todo != "" {
		r.report("refused", corev1.EventTypeWarning, "VmletRefused", fmt.Sprintf("vmlet can't write this Node: %v. Remedy: %s", err, todo))
	}
	return wait
}

// labelsIn is how many labels a plan has.
func labelsIn(p plan) int {
	n := 0
	for f := range p.fields {
		if f.kind == labelField {
			n++
		}
	}
	return n
}

// names of some fields, for people.
func names(fields []field) string {
	const some = 5
	var keys []string
	for _, f := range fields[:min(some, len(fields))] {
		keys = append(keys, f.key)
	}
	if more := len(fields) - some; more > 0 {
		keys = append(keys, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(slices.Compact(keys), ", ")
}
