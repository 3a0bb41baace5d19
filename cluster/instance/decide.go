package instance

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/saves"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// verb is what a step does.
type verb string

const (
	nothing verb = ""
	// protect puts the instance's finalizer on it, which admission has done if it is there.
	protect verb = "protect"
	// create makes the instance's pod.
	create verb = "create"
	// confirm asks the agent to promise that the pod's VM has ended.
	confirm verb = "confirm"
	// write writes the instance's status.
	write verb = "write"
	// remove deletes a pod with its own grace period, destroy with none.
	remove  verb = "delete"
	destroy verb = "destroy"
	// kill ends the guest of a pod that is being deleted, through the agent; hurry gives it less
	// time than it was given.
	kill  verb = "kill"
	hurry verb = "hurry"
	// release takes vmlet's finalizer from a pod, finalize from the instance.
	release  verb = "release"
	finalize verb = "finalize"
	// label says on the instance where it runs; relabel gives the pod the instance's labels.
	label   verb = "label"
	relabel verb = "relabel"
	// attach makes the pod through which a claim is attached to the instance's pod, detach
	// deletes it.
	attach verb = "attach"
	detach verb = "detach"
	// save has the agent save the VM, or the guest suspend itself; cancel ends that call.
	save   verb = "save"
	cancel verb = "cancel"
	// resize gives the guest more or fewer vCPUs, or memory, while it runs.
	resize verb = "resize"
)

// step is the next thing to do. It changes one object at most.
type step struct {
	do  verb
	pod *pod // of confirm, remove, destroy, kill, hurry, resize, release, relabel
	// status and events are of write.
	status *kubevirtv1.VirtualMachineInstanceStatus
	events []event
	// claim is of attach, attachment of detach, request of save.
	claim      string
	attachment *corev1.Pod
	request    saves.Request
	sizing     sizing // of resize
	// again is when to look again though nothing has changed, if there is nothing to do;
	// 0: never.
	again time.Duration
}

// decide returns the next step. It is a function of its argument alone: it can be asked
// again after each step, after a crash and by two controllers at once, as each step is
// allowed by what is observed and not by what was done before.
//
// What keeps a VM from running twice: a pod is made only for an instance whose status knows
// of none; a pod keeps its finalizer until its VM has ended and the instance's status says
// so, for good; and the instance keeps its own until then.
func decide(o *state) step {
	rules := []func(*state) step{cancelSave, endOthers}
	if o.instance != nil {
		rules = append(rules, protectInstance, createPod, confirmEnd, endPod, writeStatus, startSave, hurryGuest, resizeGuest, detachVolume, attachVolume,
			releasePod, finalizeInstance, labelInstance, relabelPod)
	}
	for _, rule := range rules {
		if s := rule(o); s.do != nothing {
			return s
		}
	}
	return step{again: nextLook(o)}
}

// endOthers ends the pods of earlier instances, which nobody else looks after.
func endOthers(o *state) step {
	for _, p := range o.others {
		switch {
		case p.gone:
		case stranded(p):
			return step{do: destroy, pod: p}
		case !p.deleting():
			return step{do: remove, pod: p}
		case askable(p):
			return step{do: confirm, pod: p}
		case p.ended() && p.held():
			return step{do: release, pod: p}
		}
	}
	return step{}
}

func protectInstance(o *state) step {
	if o.deleting() || o.final() || slices.Contains(o.instance.Finalizers, contract.FinalizerInstance) {
		return step{}
	}
	return step{do: protect}
}

func createPod(o *state) step {
	_, _, had := active(&o.instance.Status)
	if o.pod != nil || had || o.deleting() || !o.neverHadPod() || waitsFor(o) != nil {
		return step{}
	}
	return step{do: create}
}

func confirmEnd(o *state) step {
	if o.pod == nil || o.final() && !o.pod.held() || !askable(o.pod) && !overUnheard(o.pod, o.now) {
		return step{}
	}
	return step{do: confirm, pod: o.pod}
}

// askable: the kubelet ought to say that the pod has ended and does not, or the node is said to be
// lost, and the agent may know. Of a pod that is gone its agent may not be heard: it is listened to
// for the pods that are there.
func askable(p *pod) bool {
	if p.ended() || p.confirming || p.asked || p.lives() || !p.bound() && !p.stray() {
		return false
	}
	return p.gone || p.report.Current && (p.deleting() || p.terminal() || unseenEnd(p.Pod) != nil || p.lostNode())
}

// overUnheard: the VM has ended, and the kubelet, whose node is not ready, can't say so.
func overUnheard(p *pod, now time.Time) bool {
	return p.bound() && !p.ended() && !p.confirming && !p.asked && p.report.Current && stopped(p.report.VM) && !p.silence(now).IsZero()
}

// endPod deletes the pod of an instance that is being deleted, one that failed before it was
// bound to a node, or whose claim is being filled again, one that another controller made when the instance had ended, and by force
// one whose node is lost.
func endPod(o *state) step {
	p := o.pod
	switch {
	case p == nil || p.gone:
	case stranded(p):
		return step{do: destroy, pod: p}
	case !p.deleting() && (o.deleting() || !p.bound() && (p.terminal() || refilled(o)) || o.final() && !p.ended()):
		return step{do: remove, pod: p}
	}
	return step{}
}

// stranded: the pod's node is lost, and with it the kubelet that would delete it in the end.
func stranded(p *pod) bool {
	forced := p.deleting() && p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds == 0
	return p.bound() && p.lost() && !forced
}

func writeStatus(o *state) step {
	s := statusOf(o)
	if apiequality.Semantic.DeepEqual(*s, o.instance.Status) {
		return step{}
	}
	return step{do: write, status: s, events: news(&o.instance.Status, s)}
}

// hurryGuest gives a guest less time to shut down, or none, if its grace period was shortened
// after its pod was made: the pod's own stays as it is. The agent is asked again whenever
// something has changed, and takes the earliest end that it has been asked for. A shim that waits for
// a save when its pod ends stops to wait as well. A guest whose container the kubelet has lost sight
// of is ended by nobody else.
func hurryGuest(o *state) step {
	p, grace := o.pod, o.instance.Spec.TerminationGracePeriodSeconds
	if p == nil || !p.deleting() || p.ended() || p.hurried || !p.report.Current || !started(p.report.VM) {
		return step{}
	}
	own := p.report.VM.GetStatus().GetEffectiveSpec().GetStopGracePeriod()
	switch {
	case grace != nil && *grace <= 0 && (own == nil || own.AsDuration() > 0):
		return step{do: kill, pod: p}
	case grace != nil && own != nil && seconds(*grace) < own.AsDuration(), awaitsInVain(o), unseenEnd(p.Pod) != nil:
		return step{do: hurry, pod: p}
	}
	return step{}
}

// awaitsInVain: the pod is being deleted, its shim waits for a save, and nobody has asked for one.
func awaitsInVain(o *state) bool {
	state := o.pod.report.VM.GetStatus().GetState()
	return convert.AwaitsSave(o.instance) && (o.call == nil || !o.call.Active()) &&
		(state == nodev1.State_STATE_RUNNING || state == nodev1.State_STATE_PAUSED)
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }

// releasePod lets the pod go once the instance is known to have ended: it never gets another.
func releasePod(o *state) step {
	if o.pod == nil || !o.pod.held() || !o.pod.ended() || !o.final() {
		return step{}
	}
	return step{do: release, pod: o.pod}
}

func finalizeInstance(o *state) step {
	if !o.deleting() || !o.final() || !slices.Contains(o.instance.Finalizers, contract.FinalizerInstance) {
		return step{}
	}
	if p := o.pod; p != nil && (p.held() || sleeps(o) && !p.gone) || sleeps(o) && len(o.attachments) > 0 {
		return step{}
	}
	return step{do: finalize}
}

// sleeps: the guest has given back all that it had. The instance stays until that is so: its VM is
// Hibernated once the instance is gone.
func sleeps(o *state) bool {
	reason := o.instance.Status.Reason
	return reason == condition.ReasonSaved || reason == condition.ReasonSuspended
}

// labelInstance comes after Running is written, so that it delays nothing.
func labelInstance(o *state) step {
	name := o.instance.Status.NodeName
	if o.deleting() || o.recorded() != kubevirtv1.PhaseRunning || name == "" || o.instance.Labels[contract.LabelNodeName] == name {
		return step{}
	}
	return step{do: label}
}

// relabelPod has Services follow the labels of an instance that runs.
func relabelPod(o *state) step {
	p := o.pod
	if p == nil || p.gone || p.deleting() || p.ended() || p.relabelled || o.final() || !relabelled(p.Pod, o.instance) {
		return step{}
	}
	return step{do: relabel, pod: p}
}

// nextLook is when something is due though nothing changes; 0: nothing is.
func nextLook(o *state) time.Duration {
	due := lossesDue(o)
	if o.instance != nil && !o.final() {
		due = append(due, changesDue(o)...)
	}
	first := time.Duration(0)
	for _, at := range due {
		if in := at.Sub(o.now); in > 0 && (first == 0 || in < first) {
			first = in
		}
	}
	return first
}

// lossesDue is when pods' nodes are lost if their agents are not heard until then.
func lossesDue(o *state) (due []time.Time) {
	for _, p := range append(slices.Clone(o.others), o.pod) {
		if p != nil && p.bound() && p.lostNode() && !p.report.Current {
			due = append(due, o.now.Add(heardPatience-p.report.Silence))
		}
	}
	return due
}

// changesDue is when something of an instance that goes on may change by itself: a container that
// does not come to run its guest, a pod whose events may say why it does not start, a node that is
// not heard of, a pod that is gone: of its VM no agent tells anything by itself.
func changesDue(o *state) (due []time.Time) {
	if o.pod == nil {
		if f := waitsFor(o); f != nil && f.Reason == condition.ReasonClaimFilling && !o.deleting() {
			due = append(due, o.now.Add(fillingAgain)) // DataVolumes are not followed
		}
		return due
	}
	if since, runs := o.pod.runs(); runs && o.recorded() == kubevirtv1.PhaseScheduling {
		due = append(due, since.Add(scheduledPatience))
	}
	if since, runs := o.pod.runs(); runs && o.recorded() == kubevirtv1.PhaseScheduled && o.pod.report.VM == nil {
		due = append(due, since.Add(takenPatience))
	}
	if !quietSince(o).IsZero() {
		due = append(due, nextReading(o))
	}
	if o.pod.gone && !o.pod.ended() {
		due = append(due, o.now.Add(confirmAgain))
	}
	if t := computeEnd(o.pod.Pod); t != nil && o.pod.lives() {
		due = append(due, t.FinishedAt.Add(disputePatience))
	}
	if n := o.pod.node; o.pod.bound() && !o.pod.report.Current && !n.renewed.IsZero() {
		next := n.leaseDue()
		if !next.After(o.now) { // it may be renewed again, and nobody would tell
			next = o.now.Add(leaseLimit)
		}
		due = append(due, next)
	}
	if o.call != nil && !o.call.Active() && callWanted(o) {
		due = append(due, tryAgain(o.call))
	}
	if o.call != nil && o.call.Unsure {
		due = append(due, sureBy(o.call))
	}
	if next := nextAttachLook(o); !next.IsZero() {
		due = append(due, next)
	}
	if c := condition.Find(o.instance.Status.Conditions, kubevirtv1.ConditionAgentConnected); c != nil && !c.LastProbeTime.IsZero() {
		due = append(due, c.LastProbeTime.Add(guestInterval))
	}
	return due
}
