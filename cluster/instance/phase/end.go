package phase

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/save"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/proto/vmlet/node/v1/faults"
)

// endOf is how the VM ended, bounded.
func endOf(v *view.View) (kubevirtv1.Phase, condition.Fault) {
	phase, why := saidEnd(v)
	if phase == kubevirtv1.PhaseFailed && convert.RestoreFrom(v.Instance) != nil && !v.Ran(phase) {
		why.Reason = save.RestoreReason(v, why)
		why.Message = contract.ReadSentence(why.Message).Message
	}
	why.Message = condition.Clip(why.Message, 4*condition.MaxMessage)
	return phase, why
}

// suspended is how a guest ended that wrote its memory to its own disk.
var suspended = condition.Fault{Reason: condition.ReasonSuspended, Message: "the guest suspended itself to its own disk, and goes on from there when it is started"}

// saidEnd is how the VM ended: by the agent's report, else by the kubelet's, else by what is
// known of the node.
func saidEnd(v *view.View) (kubevirtv1.Phase, condition.Fault) {
	p := v.Pod
	if phase, f, is := save.End(v); is {
		return phase, f
	}
	if v.Ending(true).Reason == contract.GuestSuspended {
		return kubevirtv1.PhaseSucceeded, suspended
	}
	if t := view.ComputeEnd(p.Pod); t != nil && t.Reason == oomKilled && p.Report.VM.GetStatus().GetEndReason() == nodev1.EndReason_END_REASON_CRASHED {
		return kubevirtv1.PhaseFailed, condition.Fault{Message: containerEnd(v, p.Pod, t)} // the agent sees a signal alone
	}
	if phase, f, known := agentEnd(v, p.Report.VM); known {
		if p.Status.Reason == podEvicted && p.Status.Message != "" {
			f.Message += "; " + evicted(p.Pod)
		}
		return phase, f
	}
	if t := view.ComputeEnd(p.Pod); t != nil {
		switch {
		case v.Ending(true).Reason == contract.GuestUnstarted:
			return kubevirtv1.PhaseSucceeded, condition.Fault{Message: "the VM was ended before its guest ran"}
		case t.ExitCode == 0:
			return kubevirtv1.PhaseSucceeded, condition.Fault{Message: "the guest shut down"}
		}
		return kubevirtv1.PhaseFailed, condition.Fault{Message: containerEnd(v, p.Pod, t)}
	}
	t := view.UnseenEnd(p.Pod)
	switch {
	case p.Bound() && !p.Node.Exists:
		return kubevirtv1.PhaseFailed, condition.Fault{Reason: "NodeDeleted", Message: loss(v)}
	case p.Bound() && p.LostNode():
		return kubevirtv1.PhaseFailed, condition.Fault{Reason: "NodeOutOfService", Message: loss(v)}
	case t != nil:
		return kubevirtv1.PhaseFailed, condition.Fault{Message: containerEnd(v, p.Pod, t)}
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
func agentEnd(v *view.View, vm *nodev1.VirtualMachine) (kubevirtv1.Phase, condition.Fault, bool) {
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
		if grace := v.Instance.Spec.TerminationGracePeriodSeconds; grace != nil && *grace == 0 || !hasACPI(v) {
			return kubevirtv1.PhaseSucceeded, condition.Fault{Message: "the VM was ended without a shutdown"}, true
		}
		return kubevirtv1.PhaseFailed, condition.Fault{Message: "the guest did not shut down within its grace period and was killed"}, true
	case nodev1.EndReason_END_REASON_PANICKED:
		return kubevirtv1.PhaseFailed, condition.Fault{Message: "the guest panicked"}, true
	case nodev1.EndReason_END_REASON_CRASHED:
		return kubevirtv1.PhaseFailed, condition.Fault{Message: v.FaultWords(faults.FromProto(s.GetFaults()), s.GetMessage())}, true
	}
	return "", condition.Fault{}, false
}

func hasACPI(v *view.View) bool {
	f := v.Instance.Spec.Domain.Features
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
func containerEnd(v *view.View, p *corev1.Pod, t *corev1.ContainerStateTerminated) string {
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
		return v.FaultWords(e.Faults, e.Message)
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

const (
	// oomKilled and podEvicted are the kubelet's reasons, of a container and of a pod.
	oomKilled  = "OOMKilled"
	podEvicted = "Evicted"
)

// loss is why the pod's node is lost.
func loss(v *view.View) string {
	if !v.Pod.Node.Exists {
		return "node " + v.Pod.Spec.NodeName + " was deleted"
	}
	return "node " + v.Pod.Spec.NodeName + " is out of service, as its taint says"
}
