package nodeobject

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/vmlet/vmlet/agent/kube"
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
	// tell is for the Node's events.
	tell func(kind, reason, text string)

	tally     *tally
	bucket    *bucket
	retry     *retry
	contested map[field]contest
	said      map[string]string // by topic, what was said last

	node     *object
	facts    *Facts // nil: not known yet
	standing Standing
	// written is what was written last, back what of that had to be put back.
	written map[field]string
	back    putBack
	// pausing: the Node is still to be told that it is paused; paused: it was.
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
		log: log, now: time.Now, tally: &tally{}, bucket: newBucket(), retry: newRetry(),
		contested: map[field]contest{}, said: map[string]string{}, tell: func(string, string, string) {},
	}
}

// step does what is to be done now, and returns when to come again though nothing
// has changed; zero: not.
func (r *reconciler) step(ctx context.Context) time.Duration {
	if r.node == nil || r.facts == nil || !r.standing.Sure {
		return 0
	}
	r.tellSchedulable()
	r.tellStanding()
	if r.leaveAlone() {
		return 0
	}
	p := makePlan(&r.node.ObjectMeta, r.wish())
	r.tellConflicts(p.conflicts)
	if len(p.changes) == 0 {
		r.tally.count(func(o *Outcomes) { o.NoChanges++; o.Labels = labelsIn(p) })
		return 0
	}
	if wait := r.retry.wait(r.now()); wait > 0 {
		return wait
	}
	if r.pausing { // the last write, which need not be paid for, if it is heeded
		return r.apply(ctx, p)
	}
	verdict := r.bucket.take(r.now())
	if verdict == exhausted && !r.putsBack(p) { // the facts change that often
		r.bucket.waits, verdict = 0, throttled
	}
	switch verdict {
	case throttled:
		r.log.Warn("the Node is written too often: what is to be written waits", "fields", names(p.changes))
		r.tally.count(func(o *Outcomes) { o.Throttled++ })
	case exhausted:
		r.tally.count(func(o *Outcomes) { o.Throttled++; o.Pauses++ })
		r.pause(p)
		return r.step(ctx)
	case writeNow:
		return r.apply(ctx, p)
	}
	return r.bucket.wait(r.now())
}

// leaveAlone reports whether nothing at all is to be written, and says so.
func (r *reconciler) leaveAlone() bool {
	_, skip := r.node.Annotations[AnnotationSkip]
	_, paused := r.node.Annotations[AnnotationPaused]
	_, skipLabels := r.node.Annotations[AnnotationSkipLabels]
	skipLabels = skipLabels && !r.takenOver()
	r.tally.count(func(o *Outcomes) { o.Skipped, o.Paused = skip || skipLabels, paused || r.pausing })
	r.tellSkipping(skip, skipLabels)
	switch {
	case paused && !r.paused:
		r.log.Warn("the Node is left as it is until its annotation is taken away", "annotation", AnnotationPaused)
		r.paused, r.pausing = true, false
		r.retry.reset()
	case !paused && r.paused:
		r.paused = false
		r.bucket.forgive()
		r.say("paused", corev1.EventTypeNormal, "VmletResumed", "labels are written again: the annotation "+AnnotationPaused+" was taken away")
	}
	return skip || paused
}

// takenOver: a virt-handler is beside us and not heeded. Then KubeVirt's annotation
// is what keeps its labeller away, not ours.
func (r *reconciler) takenOver() bool { return r.standing.Reason != "" && !r.standing.Aside }

// pause gives up: somebody changes back what we write.
func (r *reconciler) pause(p plan) {
	r.pausing = true
	r.say("paused", corev1.EventTypeWarning, "VmletPaused", fmt.Sprintf(
		"something else changes back what vmlet writes to this Node (%s): it is left as it is. Find out who does it (kubectl get node %s -o yaml --show-managed-fields), then take the annotation %s away",
		names(p.changes), r.node.Name, AnnotationPaused))
}

// wish is what the Node should have now.
func (r *reconciler) wish() wish {
	if r.pausing {
		since := r.now().UTC().Format(time.RFC3339)
		if at, there := r.node.Annotations[AnnotationPaused]; there {
			since = at
		}
		pausedField := annotation(AnnotationPaused)
		return wish{fields: map[field]string{pausedField: since}, frozen: func(f field) bool { return f != pausedField }}
	}
	known, unknown := r.facts.fields()
	_, skipLabels := r.node.Annotations[AnnotationSkipLabels]
	skipLabels = skipLabels && !r.takenOver()
	w := wish{fields: known, contested: r.isContested, frozen: func(f field) bool {
		return unknown[f] || skipLabels && !isHealth(f) || r.standing.Aside && isKubeVirt(f)
	}}
	if r.heartbeat {
		w.carried = map[field]string{annotation(AnnotationHeartbeat): r.now().UTC().Format(time.RFC3339)}
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
	r.tally.count(func(o *Outcomes) {
		o.Applies++
		o.LastApply, o.LastError, o.Labels = now, "", labelsIn(p)
	})
	r.written = p.fields
	if putsBack {
		r.tellPutBack(p, now)
	}
	delete(r.said, "error")
	delete(r.said, "refused")
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
	r.tally.count(func(o *Outcomes) { o.Errors++; o.LastError, o.LastErrorAt = err.Error(), now })
	wait := r.retry.failed(now, err)
	todo := kube.Remedy(err)
	if r.said["error"] == "" {
		r.log.Warn("the Node can't be written: it is tried again", "error", err, "remedy", todo)
		r.said["error"] = "said"
	}
	if todo != "" {
		r.say("refused", corev1.EventTypeWarning, "VmletRefused", fmt.Sprintf("vmlet can't write this Node: %v. Remedy: %s", err, todo))
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
