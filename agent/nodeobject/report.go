package nodeobject

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vmlet/vmlet/contract"
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
	// Paused: by the annotation contract.AnnotationPaused. Skipped: by contract.AnnotationSkip, or
	// as far as labels go by contract.AnnotationSkipLabels. Aside: for a virt-handler.
	Paused, Skipped, Aside bool
}

// counters collect the outcomes. They may be used concurrently.
type counters struct {
	mu sync.Mutex
	o  Outcomes
}

func (c *counters) update(change func(*Outcomes)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.o)
}

func (c *counters) get() Outcomes {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.o
}

// report logs a text and writes it as an event, unless it was the last report of its
// topic.
func (r *reconciler) report(topic, kind, reason, text string) {
	if !r.isNew(topic, reason+text) {
		return
	}
	if kind == corev1.EventTypeWarning {
		r.log.Warn(text)
	} else {
		r.log.Info(text)
	}
	r.event(kind, reason, text)
}

// isNew records a text as the last report of its topic, and returns whether it differs
// from the one before.
func (r *reconciler) isNew(topic, text string) bool {
	if r.reported[topic] == text {
		return false
	}
	r.reported[topic] = text
	return true
}

// clear forgets a topic's last report, and returns whether there was one.
func (r *reconciler) clear(topic string) bool {
	was := r.reported[topic] != ""
	delete(r.reported, topic)
	return was
}

// reportSchedulable: that VMs can be started is news only after they couldn't be.
func (r *reconciler) reportSchedulable() {
	switch s := r.facts.Schedulable; {
	case s == nil:
	case !*s:
		r.report("schedulable", corev1.EventTypeWarning, "VmletNotSchedulable", "no VM can be started on this node: "+r.facts.Reason)
	case r.clear("schedulable"):
		r.log.Info("VMs can be started again")
		r.event(corev1.EventTypeNormal, "VmletSchedulable", "VMs can be started on this node again")
	}
}

// reportStanding says it on the Node; the log has it already.
func (r *reconciler) reportStanding() {
	s := r.standing
	r.counters.update(func(o *Outcomes) { o.Aside = s.Aside })
	switch {
	case s.Aside:
		if r.isNew("aside", s.Reason) {
			r.event(corev1.EventTypeNormal, "VmletStandsAside", "KubeVirt's virt-handler is on this node ("+s.Reason+"): vmlet leaves the labels and devices.kubevirt.io resources to it. To have vmlet do it, set kubernetes.takeOver")
		}
	case r.clear("aside"):
		r.event(corev1.EventTypeNormal, "VmletTakesUp", "KubeVirt's virt-handler has left this node, or is to be taken over from: vmlet writes the labels and offers the devices.kubevirt.io resources")
	}
}

func (r *reconciler) reportSkipping(all, labels bool) {
	switch {
	case all:
		r.report("skip", corev1.EventTypeNormal, "VmletSkips", "the annotation "+contract.AnnotationSkip+" is there: vmlet leaves this Node as it is, with the labels that it has")
	case labels:
		r.report("skip", corev1.EventTypeNormal, "VmletSkipsLabels", "the annotation "+contract.AnnotationSkipLabels+" is there: vmlet leaves the labels of what the machine can do as they are")
	case r.clear("skip"):
		r.event(corev1.EventTypeNormal, "VmletSkipsNoMore", "vmlet writes the labels of this Node again")
	}
}

// A value that is put back is reported the manyPutBack-th time, if each time was at
// most putBackRest after the one before: once, a person may remove it by mistake.
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

func (r *reconciler) reportPutBack(p plan, now time.Time) {
	if now.Sub(r.back.last) > putBackRest {
		r.back.times = 0
		r.clear("back")
	}
	r.back.times++
	r.back.last = now
	if r.back.times == manyPutBack {
		r.report("back", corev1.EventTypeNormal, "VmletPutsBack", fmt.Sprintf(
			"something else takes away what vmlet writes to this Node, and vmlet puts it back: %s. Find out who does it: the API server's audit log says so", names(p.changes)))
	}
}

// reportConflicts says which keys are others', once for each set of them.
func (r *reconciler) reportConflicts(now []Conflict) {
	var before []Conflict
	r.counters.update(func(o *Outcomes) {
		before = o.Conflicting
		o.Conflicting = now
		for _, c := range now {
			if !slices.ContainsFunc(before, func(b Conflict) bool { return same(b, c) }) {
				o.Conflicts++
			}
		}
	})
	if len(now) == 0 {
		if r.clear("conflicts") {
			r.log.Info("no label is another manager's any more")
		}
		return
	}
	if slices.EqualFunc(before, now, same) {
		return
	}
	r.report("conflicts", corev1.EventTypeWarning, "VmletConflict", fmt.Sprintf(
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
