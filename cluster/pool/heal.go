package pool

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	poolv1 "github.com/vmlet/vmlet/api/pool/v1beta1"
)

// defaultThreshold and defaultFailing are KubeVirt's. A member is replaced at most every firstPause, doubled
// with each replacement that has failed, up to lastPause.
const (
	defaultThreshold = 3
	defaultFailing   = 5 * time.Minute
	firstPause       = 10 * time.Second
	lastPause        = 5 * time.Minute
)

// outside are the states whose cause is not the VM: no capacity, no image, a claim of somebody else's. A new
// VM would not start, either.
var outside = []kubevirtv1.PrintableStatus{
	kubevirtv1.StatusErrorUnschedulable, kubevirtv1.StatusErrImagePull, kubevirtv1.StatusImagePullBackOff, kubevirtv1.StatusErrorPVCNotFound,
	kubevirtv1.StatusWaitingForVolumeBinding, kubevirtv1.StatusUnknown,
}

// failing says whether a member fails to start. due is when it has failed for long enough to be replaced; the
// zero time: it has.
func failing(m member, p *poolv1.VirtualMachinePoolAutohealing) (is bool, due time.Time) {
	s := m.vm.Status
	if m.ready() || slices.Contains(outside, s.PrintableStatus) {
		return false, due
	}
	if c := condition(m.vm, kubevirtv1.ConditionFailure); c != nil && c.Status == metav1.ConditionTrue {
		return false, due // the API server refuses what the VM needs, or something is missing
	}
	threshold := int32(defaultThreshold)
	for _, t := range []*int32{p.StartUpFailureThreshold, p.StartupFailureThreshold} {
		if t != nil {
			threshold = *t
		}
	}
	if f := s.StartFailure; f != nil && f.ConsecutiveFailCount >= int(threshold) {
		return true, due
	}
	// Starts that fail are counted; how long that takes matters where the pool's user says so.
	crashes := s.PrintableStatus == kubevirtv1.StatusCrashLoopBackOff && p.MinFailingToStartDuration != nil
	if !crashes && s.PrintableStatus != kubevirtv1.StatusDataVolumeError {
		return false, due
	}
	long := defaultFailing
	if p.MinFailingToStartDuration != nil {
		long = p.MinFailingToStartDuration.Duration
	}
	began := m.vm.CreationTimestamp
	if c := condition(m.vm, kubevirtv1.ConditionReady); c != nil && c.Status == metav1.ConditionFalse && c.LastTransitionTime.After(began.Time) {
		began = c.LastTransitionTime
	}
	return true, began.Add(long)
}

// heal deletes members that fail to start, with their disks, so that new ones are made. It returns how often
// each has been replaced since it was ready last.
func heal(o state, d *decision) []poolv1.HealedMember {
	serving := slices.Concat(o.serving(), o.standing())
	healed := slices.DeleteFunc(slices.Clone(o.pool.Status.Healed), func(h poolv1.HealedMember) bool {
		i := slices.IndexFunc(o.members, func(m member) bool { return m.index == h.Index && !m.leaving() })
		return i >= 0 && (o.members[i].ready() || o.members[i].standby() && o.members[i].prepared()) || i < 0 && o.now.Sub(h.Last.Time) > time.Hour
	})
	p := o.pool.Spec.Autohealing
	if p == nil {
		return healed
	}
	var sick []member
	for _, m := range serving {
		switch is, due := failing(m, p); {
		case !is:
		case due.After(o.now):
			d.look(due)
		default:
			sick = append(sick, m)
		}
	}
	allowed := o.mayBeUnavailable()
	if len(sick)*2 > len(serving) {
		allowed = 1 // the template may be at fault
	}
	allowed -= o.healing(healed, sick)
	for _, m := range ordered(sick, nil) {
		i := slices.IndexFunc(healed, func(h poolv1.HealedMember) bool { return h.Index == m.index })
		if i >= 0 {
			if next := healed[i].Last.Add(pause(healed[i].Count)); next.After(o.now) {
				d.look(next)
				continue
			}
		}
		if allowed <= 0 {
			continue
		}
		if i < 0 && len(healed) >= maxStatus {
			continue
		}
		allowed--
		if i < 0 {
			healed, i = append(healed, poolv1.HealedMember{Index: m.index}), len(healed)
		}
		healed[i].Count, healed[i].Last = min(healed[i].Count+1, 1000), metav1.NewTime(o.now).Rfc3339Copy()
		d.do(deleteMember{m, false, warning(reasonHealing, "VM %s (UID %s) is replaced with its disks, for the %s time in a row: %s",
			m.vm.Name, m.vm.UID, ordinal(healed[i].Count), cause(m)), false})
	}
	return healed
}

// healing counts the members that were replaced and are not ready yet, and not to be replaced again.
func (o state) healing(healed []poolv1.HealedMember, sick []member) (n int) {
	for _, h := range healed {
		if !slices.ContainsFunc(sick, func(m member) bool { return m.index == h.Index }) {
			n++
		}
	}
	return n
}

func pause(times int32) time.Duration {
	return min(firstPause<<min(max(times-1, 0), 10), lastPause)
}

func cause(m member) string {
	if f := m.vm.Status.StartFailure; f != nil && f.ConsecutiveFailCount > 0 {
		return fmt.Sprintf("%d starts failed", f.ConsecutiveFailCount)
	}
	return "it is " + string(m.vm.Status.PrintableStatus)
}

func ordinal(n int32) string {
	switch {
	case n%100 >= 11 && n%100 <= 13:
	case n%10 == 1:
		return fmt.Sprintf("%dst", n)
	case n%10 == 2:
		return fmt.Sprintf("%dnd", n)
	case n%10 == 3:
		return fmt.Sprintf("%drd", n)
	}
	return fmt.Sprintf("%dth", n)
}
