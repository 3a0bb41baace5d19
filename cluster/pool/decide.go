package pool

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	poolv1 "github.com/vmlet/vmlet/api/pool/v1beta1"
	"github.com/vmlet/vmlet/contract"
)

// action is one thing to be done. The order of a decision's actions counts.
type action any

type (
	// createRevision keeps a template.
	createRevision struct{ revision revision }
	// deleteRevision forgets one.
	deleteRevision struct{ name string }
	// createMember makes a VM.
	createMember struct{ vm *kubevirtv1.VirtualMachine }
	// changeMember makes a VM what to says.
	changeMember struct {
		member member
		to     *kubevirtv1.VirtualMachine
		event  event
	}
	// restartMember has a VM that runs start again.
	restartMember struct{ member member }
	// deleteMember deletes a VM, after the disks made for it have become the pool's if keep is set.
	deleteMember struct {
		member member
		keep   bool
		event  event
		// surplus: the pool has more members than it is to have; that is looked at once more.
		surplus bool
	}
	// returnClaim makes a VM the owner of a claim that was kept of its predecessor.
	returnClaim struct {
		claim  claim
		member member
	}
	// ownClaim makes the pool, or nobody, the owner of a claim that is kept.
	ownClaim struct {
		claim claim
		owned bool
	}
	// deleteClaim deletes a claim that was kept.
	deleteClaim struct {
		claim claim
		event event
	}
	// writeStatus writes the pool's status.
	writeStatus struct {
		status *poolv1.VirtualMachinePoolStatus
	}
)

type event struct{ kind, reason, note string }

// Reasons of events, as KubeVirt spells them where it has them.
const (
	reasonSuccessfulCreate  = "SuccessfulCreate"
	reasonFailedCreate      = "FailedCreate"
	reasonSuccessfulDelete  = "SuccessfulDelete"
	reasonFailedDelete      = "FailedDelete"
	reasonSuccessfulUpdate  = "SuccessfulUpdate"
	reasonFailedUpdate      = "FailedUpdate"
	reasonSuccessfulPaused  = "SuccessfulPaused"
	reasonSuccessfulResume  = "SuccessfulResume"
	reasonPreserving        = "Preserving"
	reasonPreserveFailed    = "FailedPreserve"
	reasonResuming          = "Resuming"
	reasonHealing           = "Autohealing"
	reasonPreservedReleased = "PreservedStateDeleted"
	reasonDetached          = "Detached"
	reasonAttached          = "Attached"
	reasonBudget            = "DisruptionBudget"
	reasonStandby           = "StandingBy"
	reasonStandbyFailed     = "FailedStandby"
)

func normal(reason, format string, args ...any) event {
	return event{corev1.EventTypeNormal, reason, fmt.Sprintf(format, args...)}
}

func warning(reason, format string, args ...any) event {
	return event{corev1.EventTypeWarning, reason, fmt.Sprintf(format, args...)}
}

// decision is what is to be done now, its events and conditions, and when the pool is looked at again at the latest.
type decision struct {
	actions []action
	events  []event
	again   time.Time
}

func (d *decision) do(a ...action) { d.actions = append(d.actions, a...) }

// look has the pool looked at again at a time, if nothing happens before.
func (d *decision) look(at time.Time) {
	if d.again.IsZero() || at.Before(d.again) {
		d.again = at
	}
}

// decide says what is to be done for a pool.
func decide(o state) decision {
	var d decision
	if o.pool == nil || o.pool.DeletionTimestamp != nil || o.pool.Spec.VirtualMachineTemplate == nil {
		return d // garbage collection deletes what it owns
	}
	newest, missing := o.newest()
	if missing {
		d.do(createRevision{newest})
		o.revisions = append(slices.Clone(o.revisions), newest)
	}
	release(o, &d)
	healed, now := o.pool.Status.Healed, o
	if !o.pool.Spec.Paused {
		keepBudget(o, &d)
		take(o, &d)
		o = o.without(d.actions)
		returnClaims(o, &d)
		healed = heal(o, &d)
		o = o.without(d.actions)
		scale(o, newest, &d)
		o = o.without(d.actions)
		standBy(o, newest, &d)
		o = o.without(d.actions)
		preserve(o, newest, &d)
		update(o, newest, &d)
		for _, name := range o.stale() {
			d.do(deleteRevision{name})
		}
	}
	status := summary(now, newest, healed, &d)
	// What a deletion erases is in the status before it.
	if status != nil {
		d.actions = slices.Insert(d.actions, 0, action(writeStatus{status}))
	}
	return d
}

// without returns what is left to decide on once actions are done: members that are acted on are not acted on
// twice.
func (o state) without(actions []action) state {
	acted := make(map[string]bool)
	for _, a := range actions {
		switch a := a.(type) {
		case deleteMember:
			acted[a.member.vm.Name] = true
		case changeMember:
			acted[a.member.vm.Name] = true
		}
	}
	o.members = slices.Clone(o.members)
	for i, m := range o.members {
		if acted[m.vm.Name] {
			vm := m.vm.DeepCopy()
			vm.DeletionTimestamp = &metav1.Time{Time: o.now} // as if it were on its way already
			o.members[i].vm = vm
		}
	}
	return o
}

// serving are the members that count.
func (o state) serving() (all []member) {
	for _, m := range o.members {
		if !m.leaving() && !m.preserved() && !m.standby() {
			all = append(all, m)
		}
	}
	return all
}

func (o state) wanted() int {
	if r := o.pool.Spec.Replicas; r != nil {
		return max(int(*r), 0)
	}
	return 1
}

// release takes the pool's labels from VMs that it does not own any more. It does so while it is paused, too.
func release(o state, d *decision) {
	for _, vm := range o.detached {
		to := vm.DeepCopy()
		for _, key := range []string{contract.LabelPool, contract.LabelPoolIndex, contract.LabelPoolRevision, contract.LabelPoolPreserved, contract.LabelPoolStandby} {
			delete(to.Labels, key)
		}
		delete(to.Annotations, contract.AnnotationPoolPreservedSince)
		delete(to.Annotations, contract.AnnotationPoolPaused)
		d.do(changeMember{member{vm: vm}, to, normal(reasonDetached, "VM %s was detached from the pool: nothing else of it was changed", vm.Name)})
	}
}

// take labels VMs that were given to the pool: they are counted by the label.
func take(o state, d *decision) {
	for _, m := range o.serving() {
		if m.vm.Labels[contract.LabelPool] != string(o.pool.UID) {
			to := m.vm.DeepCopy()
			to.Labels = with(to.Labels, map[string]string{contract.LabelPool: string(o.pool.UID), contract.LabelPoolIndex: strconv.Itoa(int(m.index))})
			d.do(changeMember{m, to, normal(reasonAttached, "VM %s was attached to the pool", m.vm.Name)})
		}
	}
}

// scaleIn is how members are removed.
func (o state) scaleIn() (proactive, opportunistic bool, keep poolv1.StatePreservation, by *poolv1.VirtualMachinePoolSelectionPolicy) {
	keep = poolv1.PreserveNothing
	s := o.pool.Spec.ScaleInStrategy
	switch {
	case s == nil:
		return true, false, keep, nil
	case s.Unmanaged != nil:
		return false, false, keep, nil
	case s.Opportunistic != nil:
		if p := s.Opportunistic.StatePreservation; p != nil {
			keep = *p
		}
		return false, true, keep, nil
	case s.Proactive != nil:
		if p := s.Proactive.StatePreservation; p != nil {
			keep = *p
		}
		return true, false, keep, s.Proactive.SelectionPolicy
	}
	return true, false, keep, nil
}

// scale makes or removes members.
func scale(o state, newest revision, d *decision) {
	serving := o.serving()
	leaving := 0
	for _, m := range o.members {
		if m.leaving() && !m.preserved() && !m.standby() {
			leaving++
		}
	}
	switch {
	case len(serving) > o.wanted():
		shrink(o, serving, len(serving)-o.wanted(), d)
	case len(serving)+leaving < o.wanted():
		grow(o, newest, o.wanted()-len(serving)-leaving, d)
	}
}

// shrink removes members.
func shrink(o state, serving []member, surplus int, d *decision) {
	proactive, opportunistic, keep, by := o.scaleIn()
	if !proactive && !opportunistic {
		return
	}
	candidates := ordered(serving, by)
	if opportunistic {
		candidates = slices.DeleteFunc(candidates, func(m member) bool { return !m.off() })
	}
	// One whose disks are the pool's by now was on its way.
	slices.SortStableFunc(candidates, func(a, b member) int { return order(o.keeps(b.index)) - order(o.keeps(a.index)) })
	for _, m := range candidates[:min(surplus, len(candidates), o.burst)] {
		switch {
		case keep == poolv1.PreserveMemory && (m.vm.Status.Created || m.saved()):
			d.do(o.hibernate(m))
		case keep == poolv1.PreserveNothing:
			d.do(deleteMember{m, false, normal(reasonSuccessfulDelete, "Deleted VM %s: the pool is scaled in to %d", m.vm.Name, o.wanted()), true})
		default:
			d.do(deleteMember{m, true, normal(reasonSuccessfulDelete, "Deleted VM %s and kept its disks: the pool is scaled in to %d", m.vm.Name, o.wanted()), true})
		}
	}
}

func order(first bool) int {
	if first {
		return 1
	}
	return 0
}

// keeps says whether disks of a member's predecessor, or its own, are the pool's.
func (o state) keeps(index int32) bool {
	return slices.ContainsFunc(o.claims, func(c claim) bool { return c.index == index })
}

// hibernate has a member sleep until the pool needs it again.
func (o state) hibernate(m member) action {
	to := m.vm.DeepCopy()
	mark(to, poolv1.PreserveMemory, o.now)
	//lint:ignore SA1019 a VM has one of both
	to.Spec.Running, to.Spec.RunStrategy = nil, new(kubevirtv1.RunStrategyHibernate)
	return changeMember{m, to, normal(reasonPreserving, "VM %s hibernates: the pool is scaled in to %d", m.vm.Name, o.wanted())}
}

// resume has a member go on that is preserved or stands by.
func (o state) resume(m member, start kubevirtv1.StartStrategy, e event) action {
	to := m.vm.DeepCopy()
	delete(to.Labels, contract.LabelPoolPreserved)
	delete(to.Labels, contract.LabelPoolStandby)
	delete(to.Annotations, contract.AnnotationPoolPreservedSince)
	delete(to.Annotations, contract.AnnotationPoolPaused)
	if m.standby() && m.runsBy() {
		return changeMember{m, to, e} // its guest runs, as its run strategy has it
	}
	template := o.pool.Spec.VirtualMachineTemplate.Spec
	if r := o.revision(m.revision()); r != nil {
		template = r.data.Template.Spec
	}
	strategy := kubevirtv1.RunStrategyOf(&template)
	if strategy == kubevirtv1.RunStrategyHalted || strategy == kubevirtv1.RunStrategyManual || strategy == kubevirtv1.RunStrategyHibernate {
		strategy = kubevirtv1.RunStrategyAlways // it was started by somebody, or it would have had no memory
	}
	to.Spec.RunStrategy = &strategy
	to.Spec.StartStrategy = template.StartStrategy
	if to.Spec.StartStrategy == nil && m.saved() {
		to.Spec.StartStrategy = &start
	}
	return changeMember{m, to, e}
}

func mark(o metav1.Object, as poolv1.StatePreservation, now time.Time) {
	o.SetLabels(with(o.GetLabels(), map[string]string{contract.LabelPoolPreserved: string(as)}))
	o.SetAnnotations(with(o.GetAnnotations(), map[string]string{contract.AnnotationPoolPreservedSince: now.UTC().Format(time.RFC3339)}))
}

// grow resumes members, those first whose state is kept, then those that stand by, then fills gaps from the lowest,
// then appends.
func grow(o state, newest revision, missing int, d *decision) {
	missing = min(missing, o.burst)
	var sleeping []member
	used := make(map[string]bool)
	maps.Copy(used, o.taken)
	for _, m := range o.members {
		used[m.vm.Name] = true
		if m.preserved() && !m.leaving() {
			sleeping = append(sleeping, m)
		}
	}
	slices.SortFunc(sleeping, func(a, b member) int { return int(a.index) - int(b.index) })
	for _, m := range sleeping[:min(missing, len(sleeping))] {
		missing--
		d.do(o.resume(m, kubevirtv1.StartRestore, normal(reasonResuming, "VM %s goes on: the pool is scaled out to %d", m.vm.Name, o.wanted())))
	}
	for _, m := range o.takeable(newest) {
		if missing == 0 {
			return
		}
		missing--
		d.do(o.resume(m, kubevirtv1.StartRestore, normal(reasonResuming, "VM %s, which stood by, serves: the pool is scaled out to %d", m.vm.Name, o.wanted())))
	}
	create := func(index int32) {
		name := memberName(o.pool.Name, index)
		if missing > 0 && !used[name] {
			used[name] = true
			missing--
			d.do(createMember{o.create(newest, index)})
		}
	}
	for _, c := range slices.SortedFunc(slices.Values(o.claims), func(a, b claim) int { return int(a.index) - int(b.index) }) {
		create(c.index)
	}
	for index := o.firstIndex(); missing > 0 && index >= 0; index++ {
		create(index)
	}
}

func (o state) firstIndex() int32 {
	if n := o.pool.Spec.NameGeneration; n != nil {
		return n.StartOrdinal
	}
	return 0
}

// defaultUnavailable is the design's.
var defaultUnavailable = intstr.FromString("25%")

// mayBeUnavailable is how many members may be unavailable at a time: at least one, or nothing could be updated.
func (o state) mayBeUnavailable() int {
	return o.unavailableOf(o.wanted())
}

func (o state) unavailableOf(all int) int {
	limit := o.pool.Spec.MaxUnavailable
	if limit == nil {
		limit = &defaultUnavailable
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(limit, all, false)
	if err != nil {
		n = 0 // admission refuses it
	}
	return max(n, 1)
}

// updateBy is how members get a changed template.
func (o state) updateBy() (proactive, opportunistic bool, by *poolv1.VirtualMachinePoolSelectionPolicy) {
	s := o.pool.Spec.UpdateStrategy
	switch {
	case s == nil:
		return true, false, nil
	case s.Unmanaged != nil:
		return false, false, nil
	case s.Opportunistic != nil:
		return false, true, nil
	case s.Proactive != nil:
		return true, false, s.Proactive.SelectionPolicy
	}
	return true, false, nil
}

// update changes members to the newest template.
func update(o state, newest revision, d *decision) {
	proactive, opportunistic, by := o.updateBy()
	if !proactive && !opportunistic {
		return
	}
	budget := o.changeable(newest)
	left := o.burst
	for _, m := range byReadiness(ordered(o.serving(), by)) {
		if left == 0 {
			return
		}
		costs := proactive && m.due() && m.ready() && !m.unseen()
		switch {
		case m.revision() != newest.name:
			if costs && budget <= 0 {
				continue
			}
			to, err := o.change(m, newest)
			if err != nil {
				d.events = append(d.events, warning(reasonFailedUpdate, "VM %s can't be changed to revision %s: %v", m.vm.Name, newest.name, err))
				continue
			}
			d.do(changeMember{m, to, normal(reasonSuccessfulUpdate, "Changed VM %s to revision %s", m.vm.Name, newest.name)})
		case proactive && !m.unseen() && m.restartable():
			// It has been counted since its VM was changed. But many may have been changed before the strategy
			// became proactive.
			if m.ready() && restarts(d) >= o.mayBeUnavailable()-o.down() {
				continue
			}
			d.do(restartMember{m})
			left--
			continue
		default:
			continue
		}
		left--
		if costs {
			budget--
		}
	}
}

// byReadiness has those first that don't serve: changing them takes nothing away, and may mend them.
func byReadiness(all []member) []member {
	slices.SortStableFunc(all, func(a, b member) int { return order(a.ready()) - order(b.ready()) })
	return all
}

// down counts the members that are to serve and don't.
func (o state) down() (n int) {
	for _, m := range o.members {
		if !m.preserved() && !m.standby() && (m.leaving() || m.unavailable()) {
			n++
		}
	}
	return n
}

// changeable is how many members that serve may be changed now.
func (o state) changeable(newest revision) int {
	n := o.mayBeUnavailable() - o.down()
	for _, m := range o.serving() {
		if m.ready() && m.revision() == newest.name && (m.unseen() || m.restartRequired()) {
			n-- // it is about to restart
		}
	}
	return n
}

func restarts(d *decision) (n int) {
	for _, a := range d.actions {
		if r, is := a.(restartMember); is && r.member.ready() {
			n++
		}
	}
	return n
}
