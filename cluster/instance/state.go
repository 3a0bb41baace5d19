package instance

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/imports"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/nodes"
	"github.com/vmlet/vmlet/cluster/podend"
	"github.com/vmlet/vmlet/cluster/saves"
	"github.com/vmlet/vmlet/contract"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
)

// leaseLimit is how long a node whose agent is not heard may leave its Lease as it is. The
// kubelet renews it every 10 s.
const leaseLimit = 40 * time.Second

// leasePatience is how long a Lease has to stay the same under this process's eyes besides: the
// time in it is by the node's clock, which may be behind.
const leasePatience = 15 * time.Second

// state is what was observed of an instance: all that the next step follows from.
type state struct {
	now time.Time // in whole seconds, as statuses have it
	// instance as the API server has it; nil: there is none.
	instance *kubevirtv1.VirtualMachineInstance
	// pod is the instance's own; nil: there is none, and none has vanished.
	pod *pod
	// others are pods of instances that had the same name and are gone.
	others []*pod
	// claims are those that the instance names and that are there.
	claims map[string]*corev1.PersistentVolumeClaim
	// filling is why some of them can't be used yet, by their names.
	filling map[string]*condition.Fault
	// users are those whose use of them excludes the instance's; read for an instance that has no pod.
	users []claimUser
	// fault is what kept the pod from being made in this round.
	fault *condition.Fault
	// call is the one by which the VM is saved, or suspends itself; nil: there is none, or it was
	// forgotten.
	call *saves.Call
	// attachments are the pods through which volumes are attached to the instance's.
	attachments []*corev1.Pod
	// refused is what kept such a pod from being made in this round, and attachTrouble why it
	// does not start, by its events.
	refused, attachTrouble *condition.Fault
	// images are those of the pod of a VM that was saved.
	images []kubevirtv1.SavedContainerImage
	// unsized is why the guest was refused another size in this round, by the condition that says so.
	unsized map[string]*condition.Fault
}

// effective is the specification by which the guest runs, as its agent says; nil: that is not known.
func (o *state) effective() *specv1.VirtualMachineSpec {
	if o.pod == nil || !o.pod.report.Current {
		return nil
	}
	return o.pod.report.VM.GetStatus().GetEffectiveSpec()
}

// pod is a pod of a VM, with what is known of it beyond the object.
type pod struct {
	*corev1.Pod
	// gone: the object is not there any more. Of a pod that vanished before its VM had ended
	// the UID is left, and the node as the instance's status has it.
	gone bool
	// host is the node that the pod is bound to.
	host
	// hosts are all nodes that may have had a pod which is gone, and whose node nobody
	// noted; nil: they are not known.
	hosts []*host
	// trouble is why it does not start, by its events; nil: they were not read, or don't say.
	trouble *condition.Fault
	// confirming: its agent, or those of hosts, are asked in this round, or were before and have not
	// answered yet, whether the VM has ended.
	confirming bool
	// hurried: the agent was asked in this round to end the VM, or to end it sooner.
	hurried bool
	// resized: the agent was asked in this round to resize the guest.
	resized bool
	// relabelled: the pod was given the instance's labels in this round. A webhook may have
	// changed them again.
	relabelled bool
}

// host is a node, and what its agent says of a pod's VM.
type host struct {
	name   string
	node   node
	report nodes.Report
	// replaced: another machine has taken over the name of the one that the VM was started on, and its Node. What is said
	// there, by kubelet and agent, says nothing of the first one.
	replaced bool
	// asked: it is known in this round how the agent answered whether the VM has ended, or that it
	// did not. promised: it has confirmed that; denied: it says that a VM runs, or a process that may be one.
	asked, promised, denied bool
}

// node is what is known of the node that a pod is bound to.
type node struct {
	exists       bool
	ready        corev1.ConditionStatus
	since        time.Time // ready has been so
	outOfService bool      // it carries the taint
	formerOff    bool      // it carries the taint that the machine which it was before is off
	// shuttingDown: its kubelet ends all pods, which nobody deletes.
	shuttingDown bool
	// renewed is when the kubelet renewed the node's Lease; zero: not asked, or it has none.
	renewed time.Time
	// seen is when this process first read that time.
	seen time.Time
	// labels are the node's. They are not to be changed.
	labels map[string]string
	// machine is which machine it is; nil: that is not known.
	machine *kubevirtv1.NodeMachine
}

// leaseDue is when a Lease that stays as it is means that nobody hears of the node; zero: its
// Lease was not asked for.
func (n node) leaseDue() time.Time {
	old, unchanged := n.renewed.Add(leaseLimit), n.seen.Add(leasePatience)
	switch {
	case n.renewed.IsZero():
		return time.Time{}
	case old.Before(unchanged):
		return unchanged
	}
	return old
}

// lost: nothing of the node's pods can run any more, as somebody who must know has said.
// Kubernetes acts on the taint only where the node is not ready, and so does vmlet.
func (n node) lost() bool {
	return !n.exists || n.outOfService && n.ready != corev1.ConditionTrue
}

// heardPatience is how long an agent may take to be heard, as it was started just now, or the
// controller was: it takes up its VMs within 30 s, and is connected to again within 15 s.
const heardPatience = time.Minute

// lostNode: the pod's node is, or the machine that was it, as only a taint of its own says.
func (h *host) lostNode() bool {
	if h.replaced {
		return h.node.formerOff
	}
	return h.node.lost()
}

// lost: the host is, by the word of somebody who must know, and its agent, which has had the time to
// be heard, does not contradict: of a Node that somebody deleted the machine may run on. While the
// agent is heard only its promise counts: it may not have taken up a VM that runs.
func (h *host) lost() bool {
	return h.lostNode() && !h.report.Current && !h.denied && h.report.Silence >= heardPatience
}

// lives: the agent says that the VM runs, or may.
func (h *host) lives() bool { return h.denied || h.report.Current && mayRun(h.report.VM) }

// over: no VM of the pod runs on the host, nor will. Of a pod that is gone the agent is asked before
// a lost node is believed: it is not listened to for such pods. The promise of another machine's agent
// counts when the first machine is lost.
func (h *host) over(gone bool) bool {
	return !h.lives() && (h.promised && (!h.replaced || h.lostNode()) || h.lost() && (h.asked || !gone))
}

// ended: the pod's VM does not run and never will. This is the only thing that lets a VM
// start again. Whatever the kubelet says, the agent's report that the VM runs contradicts it.
func (p *pod) ended() bool {
	switch {
	case p.lives():
		return false
	case computeEnd(p.Pod) != nil && !p.replaced:
		return true
	case p.stray():
		return p.hosts != nil && !slices.ContainsFunc(p.hosts, func(h *host) bool { return !h.over(true) })
	case !p.bound():
		return p.deleting() // the API server binds no pod that is being deleted
	}
	return p.over(p.gone)
}

// stray: the pod is gone, and may have been bound to a node after it was seen last.
func (p *pod) stray() bool { return p.gone && !p.bound() && !p.deleting() }

// computeEnd is how the container that runs the VM has ended, by the kubelet's word: others
// write pods' phases, too, and nobody else the statuses of containers. nil: it may run, also if the
// kubelet says that it has terminated and doesn't know.
func computeEnd(p *corev1.Pod) *corev1.ContainerStateTerminated {
	if c := computeStatus(p); c != nil {
		return podend.Container(c)
	}
	return nil
}

// unseenEnd is what the kubelet says of a container that it has given up, and that may run; nil:
// it hasn't, or has seen the end.
func unseenEnd(p *corev1.Pod) *corev1.ContainerStateTerminated {
	if c := computeStatus(p); c != nil && podend.Container(c) == nil {
		return c.State.Terminated
	}
	return nil
}

func computeStatus(p *corev1.Pod) *corev1.ContainerStatus {
	for i, c := range p.Status.ContainerStatuses {
		if c.Name == contract.ContainerCompute {
			return &p.Status.ContainerStatuses[i]
		}
	}
	return nil
}

// runs: the kubelet has started the container, and has not said that it ended.
func (p *pod) runs() (since time.Time, is bool) {
	c := computeStatus(p.Pod)
	if c == nil || c.State.Running == nil {
		return time.Time{}, false
	}
	return c.State.Running.StartedAt.Time, true
}

func (p *pod) bound() bool { return p.Spec.NodeName != "" }

func (p *pod) deleting() bool { return p.DeletionTimestamp != nil }

func (p *pod) held() bool { return !p.gone && slices.Contains(p.Finalizers, contract.FinalizerPod) }

func (p *pod) terminal() bool {
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

// rejected: the kubelet takes the pod not at all, and started nothing of it.
func (p *pod) rejected() bool {
	return p.bound() && p.Status.Phase == corev1.PodFailed && computeStatus(p.Pod) == nil
}

// silence is since when nobody has said that the pod's node works; zero: somebody does.
func (p *pod) silence(now time.Time) time.Time {
	n := p.node
	switch {
	case !p.bound() || !n.exists:
		return time.Time{}
	case n.ready == corev1.ConditionUnknown, n.ready != corev1.ConditionTrue && !p.report.Current:
		return n.since
	case !p.report.Current && !n.renewed.IsZero() && !now.Before(n.leaseDue()):
		return n.renewed
	}
	return time.Time{}
}

// recorded is the phase in the instance's status.
func (o *state) recorded() kubevirtv1.Phase { return o.instance.Status.Phase }

func (o *state) final() bool { return isFinal(o.recorded()) }

func (o *state) deleting() bool { return o.instance.DeletionTimestamp != nil }

func isFinal(p kubevirtv1.Phase) bool {
	return p == kubevirtv1.PhaseSucceeded || p == kubevirtv1.PhaseFailed
}

// neverHadPod: no pod was ever made, as far as the status says.
func (o *state) neverHadPod() bool {
	return o.recorded() == "" || o.recorded() == kubevirtv1.PhasePending
}

// entered says whether the instance has been in a phase.
func entered(s *kubevirtv1.VirtualMachineInstanceStatus, phase kubevirtv1.Phase) bool {
	return slices.ContainsFunc(s.PhaseTransitionTimestamps, func(t kubevirtv1.PhaseTransition) bool { return t.Phase == phase })
}

// active is the pod that the status names: its UID, and its node as far as it was known.
func active(s *kubevirtv1.VirtualMachineInstanceStatus) (uid types.UID, node string, has bool) {
	for _, uid := range slices.Sorted(maps.Keys(s.ActivePods)) {
		return uid, s.ActivePods[uid], true
	}
	return "", "", false
}

// waitsFor is why the pod can't be made yet; nil: it can.
func waitsFor(o *state) *condition.Fault {
	if o.fault != nil {
		return o.fault
	}
	for _, p := range o.others {
		if !p.ended() {
			return &condition.Fault{Reason: condition.ReasonFailedCreate, Message: "pod " + p.Name + " of an earlier instance of this name has not ended: " +
				"this one starts when it has; see kubectl describe pod " + p.Name}
		}
	}
	var missing []string
	for _, name := range claimNames(o.instance) {
		claim := o.claims[name]
		switch {
		case claim == nil:
			missing = append(missing, name)
		case claim.DeletionTimestamp != nil:
			return &condition.Fault{Reason: condition.ReasonClaimNotFound, Message: "PersistentVolumeClaim " + name + " is being deleted, which " +
				"ends with the last pod that has it: this VM starts when there is another of that name"}
		case o.filling[name] != nil:
			return o.filling[name]
		}
	}
	if missing != nil {
		return &condition.Fault{Reason: condition.ReasonClaimNotFound, Message: "there is no PersistentVolumeClaim " + strings.Join(missing, ", ") +
			" in namespace " + o.instance.Namespace + ": create it, or correct the name in spec.volumes"}
	}
	return claimInUse(o.instance, o.users)
}

// refilled: a claim is being filled, and the pod's VM would take its disk for a complete one: it was
// deleted and made again before the pod had a node.
func refilled(o *state) bool {
	return slices.ContainsFunc(claimNames(o.instance), func(name string) bool {
		claim := o.claims[name]
		if claim == nil {
			return false
		}
		state := imports.Read(claim)
		return state != nil && !state.Done()
	})
}
