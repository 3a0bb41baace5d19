package pool

import (
	"cmp"
	"maps"
	"slices"
	"time"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	poolv1 "github.com/vmlet/vmlet/api/pool/v1beta1"
	"github.com/vmlet/vmlet/contract"
)

// defaultDelay is how long a VM has been ready when it is put to sleep.
const defaultDelay = 10 * time.Second

// standbyWanted is how many members are to stand by, and how.
func (o state) standbyWanted() (n int, state poolv1.StandbyState, delay time.Duration) {
	s := o.pool.Spec.Standby
	if s == nil {
		return 0, poolv1.StandbyHibernated, defaultDelay
	}
	delay = defaultDelay
	if s.InitialDelaySeconds != nil {
		delay = time.Duration(*s.InitialDelaySeconds) * time.Second
	}
	return max(int(s.Replicas), 0), cmp.Or(s.State, poolv1.StandbyHibernated), delay
}

// standing are the members that stand by, or are being prepared to.
func (o state) standing() (all []member) {
	for _, m := range o.members {
		if m.standby() && !m.leaving() {
			all = append(all, m)
		}
	}
	return all
}

// prepared: it is in the state that it is to stand by in. It has no instance, so that one that is made when it is
// taken is as that of any member, or one whose guest is paused.
func (m member) prepared() bool {
	if m.leaving() || len(m.vm.Status.StateChangeRequests) > 0 {
		return false
	}
	if m.runsBy() {
		return m.pausing() && m.vm.Status.PrintableStatus == kubevirtv1.StatusPaused
	}
	if m.vm.Status.Created || m.unseen() {
		return false
	}
	return m.strategy() == kubevirtv1.RunStrategyHalted || m.strategy() == kubevirtv1.RunStrategyHibernate && m.saved()
}

// runsBy: it is to stand by while it runs.
func (m member) runsBy() bool {
	return m.vm.Labels[contract.LabelPoolStandby] == string(poolv1.StandbyRunning)
}

// pausing: the guest that it has now is paused, or is to be.
func (m member) pausing() bool {
	return m.instance != "" && m.vm.Annotations[contract.AnnotationPoolPaused] == string(m.instance)
}

// takeable are the members that stand by and can serve now, those first that have the newest template.
func (o state) takeable(newest revision) (all []member) {
	for _, m := range o.standing() {
		if m.prepared() {
			all = append(all, m)
		}
	}
	slices.SortStableFunc(all, func(a, b member) int {
		return order(b.revision() == newest.name) - order(a.revision() == newest.name)
	})
	return all
}

// standBy makes, prepares, replaces and removes members that stand by.
func standBy(o state, newest revision, d *decision) {
	wanted, state, delay := o.standbyWanted()
	all := o.standing()
	slices.SortStableFunc(all, func(a, b member) int { // those that are worth least first
		return cmp.Or(o.worth(a, newest, state)-o.worth(b, newest, state), cmp.Compare(b.index, a.index))
	})
	left := o.burst - len(d.actions)
	for len(all) > wanted && left > 0 {
		d.do(deleteMember{all[0], false, normal(reasonSuccessfulDelete, "Deleted VM %s, which stood by: %d are to", all[0].vm.Name, wanted), false})
		all, left = all[1:], left-1
	}
	budget := o.unavailableOf(wanted) - (wanted - len(o.takeable(newest)))
	for _, m := range all {
		switch {
		case left <= 0:
			return
		case o.worth(m, newest, state) >= worthKeeping:
			if prepare(o, m, state, delay, d) {
				left--
			}
		case m.prepared() && budget <= 0:
		default:
			d.do(deleteMember{m, false, normal(reasonSuccessfulUpdate, "VM %s, which stood by, is replaced: its template or state is another by now", m.vm.Name), false})
			left--
			if m.prepared() {
				budget--
			}
		}
	}
	refill(o, newest, state, min(wanted-o.standbyThere(), left), d)
}

// The worth of a member that stands by.
const (
	worthReplacing = iota // of another template or state, and not prepared
	worthUsing            // of another template or state
	worthKeeping
	worthMost // prepared
)

func (o state) worth(m member, newest revision, state poolv1.StandbyState) int {
	proactive, opportunistic, _ := o.updateBy()
	outdated := m.revision() != newest.name && (proactive || opportunistic)
	switch other := m.vm.Labels[contract.LabelPoolStandby] != string(state); {
	case outdated || other:
		return worthReplacing + order(m.prepared())
	case m.prepared():
		return worthMost
	}
	return worthKeeping
}

// standbyThere counts the members that stand by, and those that did and are being deleted: there are never more
// than are to be.
func (o state) standbyThere() (n int) {
	for _, m := range o.members {
		if m.standby() {
			n++
		}
	}
	return n
}

// prepare brings a member a step nearer to the state that it is to stand by in.
func prepare(o state, m member, state poolv1.StandbyState, delay time.Duration, d *decision) (acted bool) {
	name, s := m.vm.Name, m.vm.Status.HibernationStatus
	set := func(to kubevirtv1.RunStrategy, e event) bool {
		vm := m.vm.DeepCopy()
		//lint:ignore SA1019 a VM has one of both
		vm.Spec.Running, vm.Spec.RunStrategy = nil, &to
		d.do(changeMember{m, vm, e})
		return true
	}
	hibernates := m.strategy() == kubevirtv1.RunStrategyHibernate
	switch {
	case m.unseen(), m.prepared(), m.strategy() == kubevirtv1.RunStrategyHalted, m.runsBy() && (m.pausing() || m.instance == ""):
		return false
	case hibernates && s != nil && s.Phase == kubevirtv1.HibernationFailed && s.Failures >= saves:
		return set(kubevirtv1.RunStrategyHalted, warning(reasonStandbyFailed, "VM %s stands by halted: its memory could not be saved: %s", name, s.Message))
	case hibernates && !m.vm.Status.Created:
		return set(kubevirtv1.RunStrategyHalted, warning(reasonStandbyFailed, "VM %s stands by halted: its guest had ended before its memory was saved", name))
	case hibernates, !m.ready():
		return false
	}
	if c := condition(m.vm, kubevirtv1.ConditionReady); c != nil && c.LastTransitionTime.Add(delay).After(o.now) {
		d.look(c.LastTransitionTime.Add(delay))
		return false
	}
	standsBy := normal(reasonStandby, "VM %s is ready and is to stand by: %s", name, state)
	switch state {
	case poolv1.StandbyHalted:
		return set(kubevirtv1.RunStrategyHalted, standsBy)
	case poolv1.StandbyRunning:
		vm := m.vm.DeepCopy()
		vm.Annotations = with(vm.Annotations, map[string]string{contract.AnnotationPoolPaused: string(m.instance)})
		d.do(changeMember{m, vm, standsBy})
		return true
	}
	return set(kubevirtv1.RunStrategyHibernate, standsBy)
}

// refill makes members that are to stand by. Indexes of which something is kept are left to members that serve.
func refill(o state, newest revision, state poolv1.StandbyState, missing int, d *decision) {
	used := make(map[string]bool)
	maps.Copy(used, o.taken)
	for _, m := range o.members {
		used[m.vm.Name] = true
	}
	for _, a := range d.actions {
		if c, is := a.(createMember); is {
			used[c.vm.Name] = true
		}
	}
	for index := o.firstIndex(); missing > 0 && index >= 0; index++ {
		if used[memberName(o.pool.Name, index)] || o.keeps(index) {
			continue
		}
		missing--
		vm := o.create(newest, index)
		vm.Labels = with(vm.Labels, map[string]string{contract.LabelPoolStandby: string(state)})
		d.do(createMember{vm})
	}
}
