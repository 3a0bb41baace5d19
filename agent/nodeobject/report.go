package nodeobject

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Outcomes is how publishing has gone since the agent began. Counters only grow.
type Outcomes struct {
	// Applies are writes to the Node that the API server took.
	Applies uint64
	// NoChanges is how often it was looked and nothing was to be written.
	NoChanges uint64
	// Conflicts is how often a key was found to be another manager's;
	// Conflicting are those that are so now.
	Conflicts   uint64
	Conflicting []Conflict
	// Throttled is how often a write had to wait, because there were too many;
	// Pauses how often writing was given up for that.
	Throttled, Pauses uint64
	// Errors are writes that failed, LastError the last one, empty once one has
	// gone well since.
	Errors      uint64
	LastError   string
	LastErrorAt time.Time
	// LastApply is when the Node was last written; zero: not yet.
	LastApply time.Time
	// LeaseRenewals and LeaseErrors count those of the Lease.
	LeaseRenewals, LeaseErrors uint64
	// Labels is how many labels of the Node are ours.
	Labels int
	// Paused: by the annotation AnnotationPaused. Skipped: by AnnotationSkip, or
	// as far as labels go by AnnotationSkipLabels. Aside: for a virt-handler.
	Paused, Skipped, Aside bool
}

// tally is the outcomes as they come.
type tally struct {
	mu sync.Mutex
	o  Outcomes
}

func (t *tally) count(note func(*Outcomes)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	note(&t.o)
}

func (t *tally) get() Outcomes {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.o
}

// say logs something and has an event written, unless it was the last thing that
// was said of its topic.
func (r *reconciler) say(topic, kind, reason, text string) {
	if !r.news(topic, reason+text) {
		return
	}
	if kind == corev1.EventTypeWarning {
		r.log.Warn(text)
	} else {
		r.log.Info(text)
	}
	r.tell(kind, reason, text)
}

// news reports whether a text is another than the last of its topic, and notes it.
func (r *reconciler) news(topic, text string) bool {
	if r.said[topic] == text {
		return false
	}
	r.said[topic] = text
	return true
}

// unsay ends a topic. It reports whether there was something to end.
func (r *reconciler) unsay(topic string) bool {
	was := r.said[topic] != ""
	delete(r.said, topic)
	return was
}

// tellSchedulable: that VMs can be started is news only after they couldn't be.
func (r *reconciler) tellSchedulable() {
	switch s := r.facts.Schedulable; {
	case s == nil:
	case !*s:
		r.say("schedulable", corev1.EventTypeWarning, "VmletNotSchedulable", "no VM can be started on this node: "+r.facts.Reason)
	case r.unsay("schedulable"):
		r.log.Info("VMs can be started again")
		r.tell(corev1.EventTypeNormal, "VmletSchedulable", "VMs can be started on this node again")
	}
}

// tellStanding says it on the Node; the log has it already.
func (r *reconciler) tellStanding() {
	s := r.standing
	r.tally.count(func(o *Outcomes) { o.Aside = s.Aside })
	switch {
	case s.Aside:
		if r.news("aside", s.Reason) {
			r.tell(corev1.EventTypeNormal, "VmletStandsAside", "KubeVirt's virt-handler is on this node ("+s.Reason+"): vmlet leaves the labels and devices.kubevirt.io resources to it. To have vmlet do it, set kubernetes.takeOver")
		}
	case r.unsay("aside"):
		r.tell(corev1.EventTypeNormal, "VmletTakesUp", "KubeVirt's virt-handler has left this node, or is to be taken over from: vmlet writes the labels and offers the devices.kubevirt.io resources")
	}
}

func (r *reconciler) tellSkipping(all, labels bool) {
	switch {
	case all:
		r.say("skip", corev1.EventTypeNormal, "VmletSkips", "the annotation "+AnnotationSkip+" is there: vmlet leaves this Node as it is, with the labels that it has")
	case labels:
		r.say("skip", corev1.EventTypeNormal, "VmletSkipsLabels", "the annotation "+AnnotationSkipLabels+" is there: vmlet leaves the labels of what the machine can do as they are")
	case r.unsay("skip"):
		r.tell(corev1.EventTypeNormal, "VmletSkipsNoMore", "vmlet writes the labels of this Node again")
	}
}

// That something is put back is told when it was manyPutBack times, each at most
// putBackRest after the one before: once a person may do it by mistake.
const (
	manyPutBack = 3
	putBackRest = time.Hour
)

// putBack counts writes that put something back.
type putBack struct {
	times int
	last  time.Time
}

// putsBack reports whether a plan has something again that was written before.
func (r *reconciler) putsBack(p plan) bool {
	return slices.ContainsFunc(p.changes, func(f field) bool {
		wanted, wants := p.fields[f]
		before, wrote := r.written[f]
		return wants && wrote && wanted == before
	})
}

func (r *reconciler) tellPutBack(p plan, now time.Time) {
	if now.Sub(r.back.last) > putBackRest {
		r.back.times = 0
		r.unsay("back")
	}
	r.back.times++
	r.back.last = now
	if r.back.times == manyPutBack {
		r.say("back", corev1.EventTypeNormal, "VmletPutsBack", fmt.Sprintf(
			"something else takes away what vmlet writes to this Node, and vmlet puts it back: %s. Find out who does it: the API server's audit log says so", names(p.changes)))
	}
}

// tellConflicts says which keys are others', once for each set of them.
func (r *reconciler) tellConflicts(now []Conflict) {
	var before []Conflict
	r.tally.count(func(o *Outcomes) {
		before = o.Conflicting
		o.Conflicting = now
		for _, c := range now {
			if !slices.ContainsFunc(before, func(b Conflict) bool { return same(b, c) }) {
				o.Conflicts++
			}
		}
	})
	if len(now) == 0 {
		if r.unsay("conflicts") {
			r.log.Info("no label is another manager's any more")
		}
		return
	}
	if slices.EqualFunc(before, now, same) {
		return
	}
	r.say("conflicts", corev1.EventTypeWarning, "VmletConflict", fmt.Sprintf(
		"labels of this Node are another field manager's and are left as they are: %s. To have vmlet write one, take it away: kubectl label node %s %s-",
		described(now), r.node.Name, now[0].Key))
}

func same(a, b Conflict) bool {
	return a.Key == b.Key && a.Value == b.Value && a.Wanted == b.Wanted && slices.Equal(a.Owners, b.Owners)
}

// described are the first few, for people.
func described(all []Conflict) string {
	const some = 5
	var words []string
	for _, c := range all[:min(some, len(all))] {
		words = append(words, fmt.Sprintf("%s is %q and should be %q (%s)", c.Key, c.Value, c.Wanted, strings.Join(c.Owners, ", ")))
	}
	if more := len(all) - some; more > 0 {
		words = append(words, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(words, "; ")
}
