package instance

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/guest"
	"github.com/vmlet/vmlet/cluster/instance/save"
	"github.com/vmlet/vmlet/cluster/instance/trouble"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/proto/vmlet/node/v1/faults"
)

const (
	// scheduledPatience is how long a container may run before the status says Scheduled: most
	// guests run by then, and the write is saved.
	scheduledPatience = 5 * time.Second
	// guestInterval is between two writes for the sake of the guest's own word: a guest that
	// makes and removes interfaces all the time costs no more.
	guestInterval = 15 * time.Second
	// oomKilled and podEvicted are the kubelet's reasons, of a container and of a pod.
	oomKilled  = "OOMKilled"
	podEvicted = "Evicted"
	// runtimeUser is the user of VMs' pods.
	runtimeUser = 107
)

// statusOf is the status of the instance as it follows from all that is observed.
func statusOf(o *view.View) *kubevirtv1.VirtualMachineInstanceStatus {
	s := o.Instance.Status.DeepCopy()
	if o.Final() {
		return s
	}
	phase, why := phaseOf(o)
	s.Reason = why.Reason
	s.Conditions = condition.Merge(s.Conditions, conditionsOf(o, phase, why), metav1.NewTime(o.Now))
	s.Phase = phase
	enterPhase(o, s)
	if view.IsFinal(phase) {
		s.SavedImage = save.SavedAs(o, why)
		return s
	}
	if phase != kubevirtv1.PhaseScheduling || s.VolumeStatus == nil {
		s.VolumeStatus = volumeStatuses(o, phase)
		save.SetTargets(o, s)
	}
	fillAsked(o, s)
	if o.Pod == nil || o.Pod.Gone {
		return s
	}
	podStatus(o, s)
	if phase == kubevirtv1.PhaseRunning && o.Pod.Report.Current && o.Pod.Report.VM != nil {
		guest.Fill(o, s, o.Pod.Report.VM)
		paceGuest(o, s)
	}
	return s
}

// fillAsked fills in what follows from the instance alone.
func fillAsked(o *view.View, s *kubevirtv1.VirtualMachineInstanceStatus) {
	owner, generation := metav1.GetControllerOf(o.Instance), o.Instance.Annotations[contract.AnnotationVMGeneration]
	if s.VirtualMachineRevisionName == "" && owner != nil && owner.Kind == "VirtualMachine" && generation != "" {
		s.VirtualMachineRevisionName = contract.RevisionPrefix + string(owner.UID) + "-" + condition.Clip(generation, condition.MaxGuestText)
	}
	if s.Memory == nil {
		if q := guest.RequestedMemory(&o.Instance.Spec.Domain); q != nil {
			s.Memory = &kubevirtv1.MemoryStatus{GuestAtBoot: q, GuestCurrent: q, GuestRequested: q}
		}
	}
	if cpu := o.Instance.Spec.Domain.CPU; cpu != nil && s.CurrentCPUTopology == nil {
		s.CurrentCPUTopology = &kubevirtv1.CPUTopology{Sockets: max(cpu.Sockets, 1), Cores: max(cpu.Cores, 1), Threads: max(cpu.Threads, 1)}
	}
}

// enterPhase notes when the instance came to its phase for the first time. A guest that is seen
// running at once was Scheduled when its container started.
func enterPhase(o *view.View, s *kubevirtv1.VirtualMachineInstanceStatus) {
	add := func(phase kubevirtv1.Phase, at time.Time) {
		if !view.Entered(s, phase) {
			s.PhaseTransitionTimestamps = append(s.PhaseTransitionTimestamps,
				kubevirtv1.PhaseTransition{Phase: phase, PhaseTransitionTimestamp: metav1.NewTime(at.UTC().Truncate(time.Second))})
		}
	}
	if len(s.PhaseTransitionTimestamps) == 0 {
		add(kubevirtv1.PhasePending, o.Instance.CreationTimestamp.Time)
	}
	if s.Phase == kubevirtv1.PhaseRunning {
		if since, runs := o.Pod.Runs(); runs {
			add(kubevirtv1.PhaseScheduled, since)
		}
	}
	if convert.RestoreFrom(o.Instance) != nil && o.Ran(s.Phase) {
		add(kubevirtv1.PhaseRunning, o.Now) // else its image would be taken for one that nobody has gone on from
	}
	add(s.Phase, o.Now)
}

// podStatus fills in what follows from the pod. Its node is left out until the container
// runs, which saves a write.
func podStatus(o *view.View, s *kubevirtv1.VirtualMachineInstanceStatus) {
	p := o.Pod
	if p.Status.QOSClass != "" {
		class := p.Status.QOSClass
		s.QOSClass = &class
	}
	s.RuntimeUser = runtimeUser
	for _, c := range p.Spec.Containers {
		if c.Name == contract.ContainerCompute {
			s.LauncherContainerImageVersion = c.Image
		}
	}
	if s.Phase != kubevirtv1.PhaseScheduling {
		s.NodeName = p.Spec.NodeName
		s.ActivePods = map[types.UID]string{p.UID: p.Spec.NodeName}
		if s.NodeMachine == nil || s.NodeMachine.Identity == "" {
			s.NodeMachine = p.Node.Machine
		}
	} else if _, _, has := view.Active(s); !has {
		s.ActivePods = map[types.UID]string{p.UID: ""}
	}
	if s.Phase == kubevirtv1.PhaseRunning && p.Node.ShuttingDown && !p.Deleting() && convert.AwaitsSave(o.Instance) {
		s.EvacuationNodeName = p.Spec.NodeName // as an eviction would have it
	}
}

// paceGuest keeps what the guest says of itself as it was where that was written just now.
func paceGuest(o *view.View, s *kubevirtv1.VirtualMachineInstanceStatus) {
	recorded := &o.Instance.Status
	connected := condition.Find(s.Conditions, kubevirtv1.ConditionAgentConnected)
	same := apiequality.Semantic.DeepEqual(s.Interfaces, recorded.Interfaces) && apiequality.Semantic.DeepEqual(s.GuestOSInfo, recorded.GuestOSInfo)
	if connected == nil || same {
		return
	}
	if !connected.LastProbeTime.IsZero() && o.Now.Before(connected.LastProbeTime.Add(guestInterval)) && recorded.Interfaces != nil {
		s.Interfaces, s.GuestOSInfo = recorded.Interfaces, recorded.GuestOSInfo
		return
	}
	connected.LastProbeTime = metav1.NewTime(o.Now)
}

// phaseOf is where the instance is in its life, and why where it is Unknown or has just ended.
func phaseOf(o *view.View) (kubevirtv1.Phase, condition.Fault) {
	p := o.Pod
	switch {
	case p == nil && o.Deleting():
		return kubevirtv1.PhaseFailed, condition.Fault{Message: "the VM was deleted before it had a pod"}
	case p == nil && o.NeverHadPod():
		return kubevirtv1.PhasePending, condition.Fault{}
	case p == nil:
		return kubevirtv1.PhaseFailed, condition.Fault{Message: "the VM's pod is gone"}
	case p.Ended():
		return endOf(o)
	}
	if f := doubt(o); f != nil {
		return kubevirtv1.PhaseUnknown, *f
	}
	if view.Entered(&o.Instance.Status, kubevirtv1.PhaseRunning) {
		return kubevirtv1.PhaseRunning, condition.Fault{}
	}
	since, runs := p.Runs()
	switch {
	case !runs:
		return kubevirtv1.PhaseScheduling, condition.Fault{}
	case p.Report.Current && view.Started(p.Report.VM):
		return kubevirtv1.PhaseRunning, condition.Fault{}
	case !view.Entered(&o.Instance.Status, kubevirtv1.PhaseScheduled) && o.Now.Before(since.Add(scheduledPatience)):
		return kubevirtv1.PhaseScheduling, condition.Fault{}
	}
	return kubevirtv1.PhaseScheduled, condition.Fault{}
}

// doubt is why it is unknown whether the VM runs; nil: it is known, or its time to start has not
// passed yet.
func doubt(o *view.View) *condition.Fault {
	p := o.Pod
	end, agent := view.ComputeEnd(p.Pod), "vmlet's agent on node "+p.Spec.NodeName
	if p.Replaced && !p.Lives() {
		return otherMachine(o)
	}
	if p.Node.Exists && !p.Node.Lost() {
		if since := p.Silence(o.Now); !since.IsZero() {
			return silentNode(o, since)
		}
	}
	switch {
	case p.Stray():
		return &condition.Fault{Reason: condition.ReasonPodNotExists, Message: "pod " + p.Name + " was removed before its VM had ended, and its node is unknown: " +
			"the agents of all nodes have to confirm that the VM does not run there; those of " + unconfirmed(p.Hosts) + " have not, and are asked again"}
	case p.Gone:
		return &condition.Fault{Reason: condition.ReasonPodNotExists, Message: "pod " + p.Name + " was removed before its VM had ended, and the agent of node " +
			p.Spec.NodeName + " has not confirmed that it does not run there: it is asked again"}
	case p.Bound() && p.Node.Lost() && !p.Lives():
		return &condition.Fault{Reason: condition.ReasonEndUnconfirmed, Message: loss(o) + "; the VM counts as ended when " + agent + " confirms it, or has not been heard for " + view.HeardPatience.String()}
	case p.Node.Lost() && (p.Denied || p.Node.Exists):
		return &condition.Fault{Reason: condition.ReasonEndUnconfirmed, Message: loss(o) + ", and " + agent + " says that the VM, or a process of its container, runs: end it, or turn the machine off"}
	case view.UnseenEnd(p.Pod) != nil && p.Lives():
		return &condition.Fault{Reason: condition.ReasonEndUnconfirmed, Message: "the kubelet of node " + p.Spec.NodeName + " has lost sight of the VM's container, and " + agent +
			" says that the VM, or a process of the container, runs: restart the VM, and the agent shuts its guest down"}
	case view.UnseenEnd(p.Pod) != nil:
		return &condition.Fault{Reason: condition.ReasonEndUnconfirmed, Message: "the kubelet of node " + p.Spec.NodeName + " has lost sight of the VM's container, which may run until " + agent +
			" confirms that it does not: see the agents' pods on that node, and their log"}
	case end != nil && !o.Now.Before(end.FinishedAt.Add(disputePatience)):
		return &condition.Fault{Reason: condition.ReasonEndUnconfirmed, Message: "the kubelet of node " + p.Spec.NodeName + " says that the VM's container has ended, and " + agent +
			" still has the VM running: see that agent's log"}
	}
	return nil
}

// otherMachine is that the VM's node is not the machine any more that the VM was started on.
func otherMachine(o *view.View) *condition.Fault {
	node := o.Pod.Spec.NodeName
	text := "node " + node + " is another machine now than the one that the VM was started on, which may run it still"
	if o.Pod.Lives() {
		return &condition.Fault{Reason: condition.ReasonNodeReplaced, Message: text + ", and it runs on the new one: turn the former machine off, then restart the VM, or run kubectl taint node " +
			node + " " + contract.TaintFormerMachineOff + "=:PreferNoSchedule until it has ended"}
	}
	if o.Pod.Node.FormerOff {
		return &condition.Fault{Reason: condition.ReasonNodeReplaced, Message: text + ", though the taint says that it is off: the VM counts as ended when vmlet's agent on the new machine " +
			"confirms that it does not run there, or has not been heard for " + view.HeardPatience.String()}
	}
	return &condition.Fault{Reason: condition.ReasonNodeReplaced, Message: text + ": turn that machine off, then run kubectl taint node " + node + " " + contract.TaintFormerMachineOff +
		"=:PreferNoSchedule until the VM has ended, or delete the Node"}
}

// unconfirmed names the nodes on which a VM may run, the first of them.
func unconfirmed(hosts []*view.Host) string {
	var names []string
	for _, h := range hosts {
		if !h.Over(true) {
			names = append(names, h.NodeName)
		}
	}
	if more := len(names) - trouble.MaxMissing; more > 0 {
		return fmt.Sprintf("nodes %s and %d more", strings.Join(names[:trouble.MaxMissing], ", "), more)
	}
	return "nodes " + strings.Join(names, ", ")
}

// loss is why the pod's node is lost.
func loss(o *view.View) string {
	if !o.Pod.Node.Exists {
		return "node " + o.Pod.Spec.NodeName + " was deleted"
	}
	return "node " + o.Pod.Spec.NodeName + " is out of service, as its taint says"
}

func silentNode(o *view.View, since time.Time) *condition.Fault {
	name, at := o.Pod.Spec.NodeName, since.UTC().Format(time.RFC3339)
	what := "node " + name + " is not ready since " + at
	if o.Pod.Node.Ready == corev1.ConditionTrue {
		what = "node " + name + " has not been heard of since " + at
	}
	return &condition.Fault{Reason: condition.ReasonNodeUnresponsive, Message: what + "; the VM may still run there; it is started elsewhere when the node is deleted or tainted " + corev1.TaintNodeOutOfService}
}

// endOf is how the VM ended, in words of the instance: nodes know its specification alone.
func endOf(o *view.View) (kubevirtv1.Phase, condition.Fault) {
	phase, why := saidEnd(o)
	if phase == kubevirtv1.PhaseFailed && convert.RestoreFrom(o.Instance) != nil && !o.Ran(phase) {
		why.Reason = save.RestoreReason(o, why)
		why.Message = contract.ReadSentence(why.Message).Message
	}
	why.Message = o.InWords(why.Message)
	return phase, why
}

// suspended is how a guest ended that wrote its memory to its own disk.
var suspended = condition.Fault{Reason: condition.ReasonSuspended, Message: "the guest suspended itself to its own disk, and goes on from there when it is started"}

// saidEnd is how the VM ended: by the agent's report, else by the kubelet's, else by what is
// known of the node.
func saidEnd(o *view.View) (kubevirtv1.Phase, condition.Fault) {
	p := o.Pod
	if phase, f, is := save.End(o); is {
		return phase, f
	}
	if o.Ending(true).Reason == contract.GuestSuspended {
		return kubevirtv1.PhaseSucceeded, suspended
	}
	if t := view.ComputeEnd(p.Pod); t != nil && t.Reason == oomKilled && p.Report.VM.GetStatus().GetEndReason() == nodev1.EndReason_END_REASON_CRASHED {
		return kubevirtv1.PhaseFailed, condition.Fault{Message: containerEnd(o, p.Pod, t)} // the agent sees a signal alone
	}
	if phase, f, known := agentEnd(o, p.Report.VM); known {
		if p.Status.Reason == podEvicted && p.Status.Message != "" {
			f.Message += "; " + evicted(p.Pod)
		}
		return phase, f
	}
	if t := view.ComputeEnd(p.Pod); t != nil {
		switch {
		case o.Ending(true).Reason == contract.GuestUnstarted:
			return kubevirtv1.PhaseSucceeded, condition.Fault{Message: "the VM was ended before its guest ran"}
		case t.ExitCode == 0:
			return kubevirtv1.PhaseSucceeded, condition.Fault{Message: "the guest shut down"}
		}
		return kubevirtv1.PhaseFailed, condition.Fault{Message: containerEnd(o, p.Pod, t)}
	}
	t := view.UnseenEnd(p.Pod)
	switch {
	case p.Bound() && !p.Node.Exists:
		return kubevirtv1.PhaseFailed, condition.Fault{Reason: "NodeDeleted", Message: loss(o)}
	case p.Bound() && p.LostNode():
		return kubevirtv1.PhaseFailed, condition.Fault{Reason: "NodeOutOfService", Message: loss(o)}
	case t != nil:
		return kubevirtv1.PhaseFailed, condition.Fault{Message: containerEnd(o, p.Pod, t)}
	case p.Status.Message != "":
		return kubevirtv1.PhaseFailed, condition.Fault{Reason: p.Status.Reason, Message: p.Status.Message}
	case p.Gone:
		return kubevirtv1.PhaseFailed, condition.Fault{Message: "pod " + p.Name + " was removed before its VM had ended"}
	}
	if f := failedContainer(p.Pod); f != "" {
		return kubevirtv1.PhaseFailed, condition.Fault{Message: f}
	}
	return kubevirtv1.PhaseFailed, condition.Fault{Message: "the VM's pod was deleted before the guest ran"}
}

// agentEnd is how the VM ended by the agent's report. A guest that was not given time to shut
// down, or has no ACPI by which it could be asked, has not failed when it is killed.
func agentEnd(o *view.View, vm *nodev1.VirtualMachine) (kubevirtv1.Phase, condition.Fault, bool) {
	switch s := vm.GetStatus(); s.GetEndReason() {
	case nodev1.EndReason_END_REASON_SHUTDOWN:
		return kubevirtv1.PhaseSucceeded, condition.Fault{Message: "the guest shut down"}, true
	case nodev1.EndReason_END_REASON_SAVED:
		return kubevirtv1.PhaseSucceeded, condition.Fault{Message: "the VM was saved"}, true
	case nodev1.EndReason_END_REASON_SUSPENDED:
		return kubevirtv1.PhaseSucceeded, suspended, true
	case nodev1.EndReason_END_REASON_KILLED:
		return kubevirtv1.PhaseSucceeded, condition.Fault{Message: "the VM was ended without a shutdown, as was asked for"}, true
	case nodev1.EndReason_END_REASON_GRACE_PERIOD_OVER:
		if grace := o.Instance.Spec.TerminationGracePeriodSeconds; grace != nil && *grace == 0 || !hasACPI(o) {
			return kubevirtv1.PhaseSucceeded, condition.Fault{Message: "the VM was ended without a shutdown"}, true
		}
		return kubevirtv1.PhaseFailed, condition.Fault{Message: "the guest did not shut down within its grace period and was killed"}, true
	case nodev1.EndReason_END_REASON_PANICKED:
		return kubevirtv1.PhaseFailed, condition.Fault{Message: "the guest panicked"}, true
	case nodev1.EndReason_END_REASON_CRASHED:
		return kubevirtv1.PhaseFailed, condition.Fault{Message: o.FaultWords(faults.FromProto(s.GetFaults()), s.GetMessage())}, true
	}
	return "", condition.Fault{}, false
}

func hasACPI(o *view.View) bool {
	f := o.Instance.Spec.Domain.Features
	return f == nil || f.ACPI.Enabled == nil || *f.ACPI.Enabled
}

const (
	// signalled and the number of a signal are the exit code of a container that the signal ended.
	// It had no time for last words: what the kubelet has in their place is the end of the
	// guest's console.
	signalled = 128
	// lastSignal is the highest number of a signal.
	lastSignal = 64
	// endedItself is the kubelet's reason of a container whose end it has seen. Of others it has
	// words of its own.
	endedItself = "Error"
)

// containerEnd is why the VM's container failed, in a sentence.
func containerEnd(o *view.View, p *corev1.Pod, t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason == oomKilled:
		return "the kernel killed the VM as its pod needed more memory than its limit: raise spec.domain.resources.limits.memory or give the guest less"
	case p.Status.Reason == podEvicted && p.Status.Message != "":
		return evicted(p)
	case t.ExitCode > signalled && t.ExitCode <= signalled+lastSignal && t.Reason == endedItself:
		return fmt.Sprintf("signal %d ended the VM's container, from somebody or, where memory ran out, from the kernel: see kubectl logs %s -c %s",
			t.ExitCode-signalled, p.Name, contract.ContainerCompute)
	case t.Message != "":
		e := contract.ReadEnding(t.Message)
		return o.FaultWords(e.Faults, e.Message)
	}
	if f := failedContainer(p); f != "" {
		return f
	}
	return "the VM's container failed and said nothing (" + t.Reason + "): see kubectl logs " + p.Name + " -c " + contract.ContainerCompute
}

func evicted(p *corev1.Pod) string { return "the kubelet evicted the VM's pod: " + p.Status.Message }

// failedContainer is what the first container that failed before the VM's said.
func failedContainer(p *corev1.Pod) string {
	for _, c := range p.Status.InitContainerStatuses {
		t := c.State.Terminated
		if t == nil || t.ExitCode == 0 {
			t = c.LastTerminationState.Terminated
		}
		if t != nil && t.ExitCode != 0 && t.Message != "" {
			return "container " + c.Name + ": " + t.Message
		}
	}
	return ""
}
