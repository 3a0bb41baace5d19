package pool

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	poolv1 "github.com/vmlet/vmlet/api/pool/v1beta1"
	"github.com/vmlet/vmlet/contract"
)

// maxStatus bounds the lists of a status, as the definition does.
const maxStatus = 1000

// defaultDeadline is how long an update may go without progress, as of Deployments.
const defaultDeadline = 10 * time.Minute

// Reasons of conditions.
const (
	reasonPaused           = "Paused"
	reasonComplete         = "Complete"
	reasonUpdating         = "Updating"
	reasonDeadline         = "ProgressDeadlineExceeded"
	reasonRestartsPending  = "RestartsPending"
	reasonMembersFail      = "MembersFail"
	reasonMemberUnhandled  = "FailedAction"
	reasonUpdatesUnmanaged = "UpdatesUnmanaged"
)

// summary returns the status as it is to be; nil: it is so.
func summary(o state, newest revision, healed []poolv1.HealedMember, d *decision) *poolv1.VirtualMachinePoolStatus {
	was := o.pool.Status
	to := was.DeepCopy()
	to.ObservedGeneration = o.pool.Generation
	to.LabelSelector = contract.LabelPool + "=" + string(o.pool.UID) + ",!" + contract.LabelPoolStandby
	to.UpdateRevision = newest.name
	to.Replicas, to.ReadyReplicas, to.UpdatedReplicas, to.AvailableReplicas = 0, 0, 0, 0
	to.StandbyReplicas, to.ReadyStandbyReplicas = 0, 0
	outdated, restarts := 0, 0
	for _, m := range o.members {
		if m.leaving() || m.preserved() && (m.saved() || !m.vm.Status.Created) {
			continue
		}
		if m.standby() {
			to.StandbyReplicas++
			if m.prepared() {
				to.ReadyStandbyReplicas++
			}
			continue
		}
		to.Replicas++
		ready, current := m.ready(), m.revision() == newest.name
		updated := current && !m.unseen() && !m.restartRequired()
		if ready {
			to.ReadyReplicas++
		}
		if updated {
			to.UpdatedReplicas++
		}
		if ready && updated {
			to.AvailableReplicas++
		}
		switch {
		case o.spared(m):
		case !current:
			outdated++
		case m.restartRequired():
			restarts++
		}
	}
	to.Preserved = nil
	for _, k := range o.preserved() {
		to.Preserved = append(to.Preserved, k.PreservedMember)
	}
	to.PreservedReplicas = int32(len(to.Preserved))
	to.Preserved = to.Preserved[:min(len(to.Preserved), maxStatus)]
	to.Healed = healed
	o.conditions(to, outdated, restarts, d)
	if equality.Semantic.DeepEqual(&was, to) {
		return nil
	}
	return to
}

// spared: the update strategy's selectors leave the member alone.
func (o state) spared(m member) bool {
	_, _, by := o.updateBy()
	return by != nil && !chosen(m, by.Selectors)
}

// conditions says how an update goes, and what fails.
func (o state) conditions(to *poolv1.VirtualMachinePoolStatus, outdated, restarts int, d *decision) {
	was := o.pool.Status
	condition := func(kind string, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&to.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: o.pool.Generation,
			LastTransitionTime: metav1.NewTime(o.now).Rfc3339Copy(),
		})
	}
	set := func(kind, reason, message string) { condition(kind, metav1.ConditionTrue, reason, message) }
	unset := func(kind string) { meta.RemoveStatusCondition(&to.Conditions, kind) }
	wasPaused := meta.IsStatusConditionTrue(was.Conditions, poolv1.ConditionReplicaPaused)
	proactive, opportunistic, _ := o.updateBy()
	due := 0
	for _, m := range o.serving() {
		if m.due() && !o.spared(m) {
			due++
		}
	}
	complete := outdated == 0 && restarts == 0 && int(to.AvailableReplicas) >= due && len(o.serving()) >= o.wanted()
	if was.UpdateRevision != to.UpdateRevision || was.UpdatedReplicas < to.UpdatedReplicas || was.AvailableReplicas < to.AvailableReplicas ||
		was.Replicas != to.Replicas || to.LastProgressTime == nil || wasPaused && !o.pool.Spec.Paused {
		to.LastProgressTime = new(metav1.NewTime(o.now).Rfc3339Copy())
	}
	deadline := defaultDeadline
	if s := o.pool.Spec.ProgressDeadlineSeconds; s != nil {
		deadline = time.Duration(*s) * time.Second
	}
	end := to.LastProgressTime.Add(deadline)
	sizes := fmt.Sprintf("%d of %d VMs have revision %s, %d of them are ready", to.UpdatedReplicas, to.Replicas, to.UpdateRevision, to.AvailableReplicas)
	switch {
	case o.pool.Spec.Paused:
		set(poolv1.ConditionProgressing, reasonPaused, "The pool is paused")
	case complete:
		set(poolv1.ConditionProgressing, reasonComplete, "All VMs are up and have the newest template")
	case !proactive && int(to.AvailableReplicas)+outdated+restarts >= due && len(o.serving()) >= o.wanted():
		set(poolv1.ConditionProgressing, reasonUpdatesUnmanaged, sizes+": the update strategy restarts none")
	case !o.now.Before(end):
		condition(poolv1.ConditionProgressing, metav1.ConditionFalse, reasonDeadline, fmt.Sprintf("No progress for %v: %s: look at the VMs that are not ready, or apply the earlier template again", deadline, sizes))
	default:
		set(poolv1.ConditionProgressing, reasonUpdating, sizes)
		d.look(end)
	}
	switch {
	case outdated+restarts == 0:
		unset(poolv1.ConditionUpdatePending)
	case opportunistic:
		set(poolv1.ConditionUpdatePending, reasonRestartsPending, fmt.Sprintf("%d VMs get the newest template when they start again", outdated+restarts))
	case !proactive:
		set(poolv1.ConditionUpdatePending, reasonUpdatesUnmanaged, fmt.Sprintf("%d VMs have an older template, and the pool changes none", outdated))
	default:
		set(poolv1.ConditionUpdatePending, reasonUpdating, fmt.Sprintf("%d VMs have an older template, %d are to restart", outdated, restarts))
	}
	o.failures(set, unset)
	if o.pool.Spec.Paused {
		set(poolv1.ConditionReplicaPaused, reasonPaused, "The pool is paused: it makes, changes and removes no VM")
	} else {
		unset(poolv1.ConditionReplicaPaused)
	}
	if wasPaused != o.pool.Spec.Paused {
		if wasPaused {
			d.events = append(d.events, normal(reasonSuccessfulResume, "The pool goes on"))
		} else {
			d.events = append(d.events, normal(reasonSuccessfulPaused, "The pool is paused"))
		}
	}
}

// failures sets condition ReplicaFailure.
func (o state) failures(set func(kind, reason, message string), unset func(kind string)) {
	var sick []string
	any := new(poolv1.VirtualMachinePoolAutohealing)
	for _, m := range slices.Concat(o.serving(), o.standing()) {
		if is, _ := failing(m, any); is {
			sick = append(sick, m.vm.Name)
		}
	}
	slices.Sort(sick)
	const named = 3
	switch {
	case o.failed != "":
		set(poolv1.ConditionReplicaFailure, reasonMemberUnhandled, o.failed)
	case len(sick) > 0:
		message := fmt.Sprintf("%d of %d VMs fail to start, %s among them", len(sick), len(o.serving()), sick[0])
		if len(sick) <= named {
			message = fmt.Sprintf("VMs fail to start: %s", strings.Join(sick, ", "))
		}
		if len(sick)*2 > len(o.serving()) && o.pool.Spec.Autohealing != nil {
			message += ". As they are more than half, the template may be at fault: one at a time is replaced"
		}
		set(poolv1.ConditionReplicaFailure, reasonMembersFail, message)
	default:
		unset(poolv1.ConditionReplicaFailure)
	}
}
