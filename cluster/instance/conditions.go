package instance

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
)

// Types of conditions beside those of the API.
const (
	conditionPodScheduled = string(corev1.PodScheduled)
	// ConditionNetworkLimited is True while the guest's network does less than KubeVirt's.
	ConditionNetworkLimited = "NetworkLimited"
)

// Reasons of conditions; those that KubeVirt has in its spelling.
const (
	reasonFailedCreate     = "FailedCreate"
	reasonClaimNotFound    = "FailedPvcNotFound"
	reasonClaimFilling     = "DataVolumeNotReady"
	reasonClaimInUse       = "ClaimInUse"
	reasonFailedStart      = "FailedStart"
	reasonPodNotExists     = "PodNotExists"
	reasonPodTerminating   = "PodTerminating"
	reasonPodConditionMiss = "PodConditionMissing"
	reasonGuestNotRunning  = "GuestNotRunning"
	reasonNodeUnresponsive = kubevirtv1.ReasonNodeUnresponsive
	reasonEndUnconfirmed   = kubevirtv1.ReasonEndUnconfirmed
	reasonNodeReplaced     = kubevirtv1.ReasonNodeReplaced
	reasonPausedByUser     = kubevirtv1.ReasonPausedByUser
	reasonPausedIOError    = kubevirtv1.ReasonPausedIOError
	reasonPaused           = "Paused"
	reasonNotSupported     = "LiveMigrationNotSupported"
	reasonUserNetwork      = "UserModeNetwork"
	reasonEmulation        = "Emulation"
	reasonAgentConnected   = "AgentConnected"
	reasonAgentLacks       = "CommandsMissing"
	reasonCredentials      = "AccessCredentialsSynchronized"
	reasonNoCredentials    = "AccessCredentialsSyncFailed"
	reasonAgentUnavailable = kubevirtv1.ReasonAgentUnavailable
	reasonFailedMount      = "FailedMount"
	reasonImagePull        = "ErrImagePull"
	reasonImageBackOff     = "ImagePullBackOff"
)

// takenPatience is how long an agent may take to take up a VM whose container runs, before the
// instance says so.
const takenPatience = time.Minute

// disputePatience is how much later than the kubelet an agent may say that a VM has ended, before the
// instance says so.
const disputePatience = time.Minute

// owned are the conditions that this package writes; all others stay as they are.
var owned = []string{
	kubevirtv1.ConditionReady, kubevirtv1.ConditionSynchronized, kubevirtv1.ConditionPaused,
	kubevirtv1.ConditionHotVCPUChange, kubevirtv1.ConditionHotMemoryChange,
	kubevirtv1.ConditionAgentConnected, kubevirtv1.ConditionAgentVersionNotSupported, kubevirtv1.ConditionLiveMigratable,
	kubevirtv1.ConditionAccessCredentialsSynchronized,
	kubevirtv1.ConditionSoftwareEmulation, conditionPodScheduled, ConditionNetworkLimited,
	kubevirtv1.ConditionHibernationInProgress, kubevirtv1.ConditionHibernationRestoreInProgress,
}

// find is a condition by its type; nil: there is none.
func find(conditions []kubevirtv1.Condition, of string) *kubevirtv1.Condition {
	for i := range conditions {
		if conditions[i].Type == of {
			return &conditions[i]
		}
	}
	return nil
}

// merge puts wanted in the place of those of known that are owned. One that says the same as
// before keeps its times, and one of the same status the time of its transition.
func merge(known, wanted []kubevirtv1.Condition, now metav1.Time) []kubevirtv1.Condition {
	var all []kubevirtv1.Condition
	for _, c := range known {
		if !slices.Contains(owned, c.Type) || find(wanted, c.Type) != nil {
			all = append(all, c)
		}
	}
	for _, w := range wanted {
		w.LastTransitionTime = now
		old := find(all, w.Type)
		if old == nil {
			all = append(all, w)
			continue
		}
		if old.Status == w.Status {
			w.LastTransitionTime = old.LastTransitionTime
		}
		if w.LastProbeTime.IsZero() {
			w.LastProbeTime = old.LastProbeTime
		}
		*old = w
	}
	return all
}

// conditionsOf are the conditions of an instance that comes to this phase. why is the reason of that.
func conditionsOf(o *state, phase kubevirtv1.Phase, why fault) []kubevirtv1.Condition {
	f := unsynchronized(o, phase, why)
	all := []kubevirtv1.Condition{readyNow(o, phase, why, f), notMigratable()}
	if f != nil {
		all = append(all, condition(kubevirtv1.ConditionSynchronized, metav1.ConditionFalse, f.reason, f.message))
	}
	if o.pod != nil && !isFinal(phase) {
		if c := podCondition(o.pod.Pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse {
			all = append(all, condition(conditionPodScheduled, metav1.ConditionFalse, c.Reason, c.Message))
		}
	}
	all = append(all, guestConditions(o, phase)...)
	all = append(all, resizeConditions(o, phase)...)
	for _, c := range []*kubevirtv1.Condition{hibernating(o, phase, why), resuming(o, phase, why)} {
		if c != nil {
			all = append(all, *c)
		}
	}
	for i := range all {
		all[i].ObservedGeneration = o.instance.Generation
	}
	return all
}

func condition(of string, status metav1.ConditionStatus, reason, message string) kubevirtv1.Condition {
	return kubevirtv1.Condition{Type: of, Status: status, Reason: reason, Message: sentence(message)}
}

func notMigratable() kubevirtv1.Condition {
	return condition(kubevirtv1.ConditionLiveMigratable, metav1.ConditionFalse, reasonNotSupported,
		"vmlet does not migrate running VMs yet: shut the VM down and start it to have it on another node")
}

// readyNow follows the pod's readiness while the guest runs. Before that it says what keeps the
// guest from running, nil if nothing is known to: it is the condition that VMs have, too.
func readyNow(o *state, phase kubevirtv1.Phase, why fault, f *fault) kubevirtv1.Condition {
	no := func(reason, message string) kubevirtv1.Condition {
		return condition(kubevirtv1.ConditionReady, metav1.ConditionFalse, reason, message)
	}
	switch {
	case isFinal(phase):
		return no(reasonGuestNotRunning, why.message)
	case phase == kubevirtv1.PhaseUnknown:
		return no(why.reason, why.message)
	case o.pod == nil:
		return no(reasonPodNotExists, "the VM has no pod yet"+because(f))
	case o.pod.deleting():
		return no(reasonPodTerminating, "the VM's pod is being deleted: the guest has its grace period to shut down")
	case phase != kubevirtv1.PhaseRunning:
		if f == nil {
			f = unscheduled(o)
		}
		return no(reasonGuestNotRunning, "the guest has not started yet"+because(f))
	case isPaused(o):
		return no(reasonGuestNotRunning, "the guest is paused")
	}
	c := podCondition(o.pod.Pod, readyCondition(o.pod.Pod))
	if c == nil {
		return no(reasonPodConditionMiss, "the kubelet has not said whether the pod is ready")
	}
	return condition(kubevirtv1.ConditionReady, metav1.ConditionStatus(c.Status), c.Reason, c.Message)
}

// readyCondition is the condition that says whether the guest is ready. A pod of a VM that stands by never is, by a
// readiness gate, so that Services leave it out.
func readyCondition(p *corev1.Pod) corev1.PodConditionType {
	if p.Labels[contract.LabelPoolStandby] != "" {
		return corev1.ContainersReady
	}
	return corev1.PodReady
}

func because(f *fault) string {
	if f == nil {
		return ""
	}
	return ": " + f.message
}

// unscheduled is why the scheduler finds no node; nil: it has found one, or has not looked.
func unscheduled(o *state) *fault {
	c := podCondition(o.pod.Pod, corev1.PodScheduled)
	if c == nil || c.Status != corev1.ConditionFalse {
		return nil
	}
	return &fault{c.Reason, "no node takes the VM's pod: " + c.Message + asSaved(o)}
}

// isPaused: the agent says so, or has said so before it was lost.
func isPaused(o *state) bool {
	if s := o.pod.report.VM.GetStatus().GetState(); o.pod.report.Current && o.pod.report.VM != nil && s != nodev1.State_STATE_SAVING {
		return s == nodev1.State_STATE_PAUSED
	}
	return find(o.instance.Status.Conditions, kubevirtv1.ConditionPaused) != nil
}

func podCondition(p *corev1.Pod, of corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == of {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// unsynchronized is why the VM is not as it was asked for; nil: it is, or nothing is known
// to be wrong.
func unsynchronized(o *state, phase kubevirtv1.Phase, why fault) *fault {
	switch {
	case isFinal(phase):
		if entered(&o.instance.Status, kubevirtv1.PhaseRunning) || phase == kubevirtv1.PhaseSucceeded {
			return nil
		}
		return &fault{reasonFailedStart, why.message}
	case o.pod == nil:
		return waitsFor(o)
	}
	if f := waitingFault(o); f != nil {
		return f
	}
	switch {
	case o.pod.replaced && o.pod.lives() && !o.pod.node.formerOff:
		return otherMachine(o)
	case phase == kubevirtv1.PhaseScheduling && o.pod.rejected() && !o.pod.report.Current:
		return &fault{reasonAgentUnavailable, "node " + o.pod.Spec.NodeName + " rejected the VM's pod (" + o.pod.Status.Message +
			"), and vmlet's agent there is not heard, which has to confirm that no VM runs: see the agents' pods on that node, and their log"}
	case phase == kubevirtv1.PhaseScheduling:
		return o.pod.trouble
	case phase == kubevirtv1.PhaseScheduled && !o.pod.report.Current:
		return &fault{reasonAgentUnavailable, "vmlet's agent on node " + o.pod.Spec.NodeName +
			" is not heard, and no VM starts there until it is: see the agents' pods on that node, and their log"}
	case phase == kubevirtv1.PhaseScheduled && o.pod.report.VM == nil:
		return untaken(o)
	}
	return nil
}

// untaken: the agent is heard and has not taken up the VM in good time.
func untaken(o *state) *fault {
	if claim := imageClaim(o); claim != "" && !attached(podOfClaim(o, claim), o.pod.Spec.NodeName) {
		return attachFault(o, claim)
	}
	since, runs := o.pod.runs()
	if !runs || o.now.Before(since.Add(takenPatience)) {
		return nil
	}
	return &fault{reasonFailedStart, "the VM's container runs since " + since.UTC().Format(time.RFC3339) + ", and vmlet's agent on node " +
		o.pod.Spec.NodeName + " has not started its VM: see that agent's log"}
}

// guestConditions are what the agent says. While it is not heard, they stay as they are.
func guestConditions(o *state, phase kubevirtv1.Phase) []kubevirtv1.Condition {
	if isFinal(phase) || o.pod == nil {
		return nil
	}
	vm := o.pod.report.VM
	if !o.pod.report.Current || vm == nil || phase != kubevirtv1.PhaseRunning {
		return keptConditions(o)
	}
	var all []kubevirtv1.Condition
	switch was := find(o.instance.Status.Conditions, kubevirtv1.ConditionPaused); {
	case vm.GetStatus().GetState() == nodev1.State_STATE_PAUSED:
		reason, message := pauseReason(vm)
		all = append(all, condition(kubevirtv1.ConditionPaused, metav1.ConditionTrue, reason, o.inWords(message)))
	case vm.GetStatus().GetState() == nodev1.State_STATE_SAVING && was != nil:
		all = append(all, *was) // it is paused again if the save fails
	}
	all = append(all, agentConditions(o, vm.GetStatus().GetGuest())...)
	all = append(all, credentialCondition(o, vm.GetStatus().GetGuest().GetCredentials())...)
	if vm.GetStatus().GetHypervisor() == "emulation" {
		all = append(all, condition(kubevirtv1.ConditionSoftwareEmulation, metav1.ConditionTrue, reasonEmulation,
			"the VM is emulated, which is slow: "+o.inWords(vm.GetStatus().GetHypervisorReason())))
	}
	if slices.ContainsFunc(vm.GetStatus().GetEffectiveSpec().GetNetworks(), behindNAT) {
		all = append(all, condition(ConditionNetworkLimited, metav1.ConditionTrue, reasonUserNetwork, o.inWords(limits(vm))))
	}
	return all
}

// limits is what the guest lacks behind the VMM's own network, and why it is there.
func limits(vm *nodev1.VirtualMachine) string {
	text := "the guest is behind QEMU's user-mode network: it reaches others by TCP and UDP, and is reached at the pod's address at the ports listed in spec.domain.devices.interfaces alone, and at no IPv6 address; QEMU accepts connections itself, so that tcpSocket probes succeed whatever the guest does"
	if why := vm.GetStatus().GetNetworkLimited(); why != "" {
		return text + ": " + clip(why, maxGuestText)
	}
	return text
}

// agentConditions are those of the agent in the guest. One that has not answered yet may be
// supported.
func agentConditions(o *state, g *nodev1.GuestStatus) []kubevirtv1.Condition {
	if !g.GetAgentConnected() {
		return nil
	}
	all := []kubevirtv1.Condition{condition(kubevirtv1.ConditionAgentConnected, metav1.ConditionTrue, reasonAgentConnected, "")}
	if c := g.GetGuestAgentCondition(); c != nil && !c.GetSupported() {
		all = append(all, condition(kubevirtv1.ConditionAgentVersionNotSupported, metav1.ConditionTrue, reasonAgentLacks, clip(c.GetReason(), maxMessage)))
	}
	return all
}

// credentialCondition is whether the guest has the Secrets of accessCredentials that its agent
// brings in; none: nobody has said.
func credentialCondition(o *state, c *nodev1.GuestCredentials) []kubevirtv1.Condition {
	switch {
	case c == nil:
		return nil
	case c.GetSynchronized():
		return []kubevirtv1.Condition{condition(kubevirtv1.ConditionAccessCredentialsSynchronized, metav1.ConditionTrue, reasonCredentials, "")}
	}
	return []kubevirtv1.Condition{condition(kubevirtv1.ConditionAccessCredentialsSynchronized, metav1.ConditionFalse, reasonNoCredentials, o.inWords(c.GetMessage()))}
}

func behindNAT(n *specv1.NetworkInterface) bool { return n.GetUser() != nil }

// keptConditions are those of the guest's as they were last known.
func keptConditions(o *state) []kubevirtv1.Condition {
	var all []kubevirtv1.Condition
	for _, of := range []string{kubevirtv1.ConditionPaused, kubevirtv1.ConditionAgentConnected, kubevirtv1.ConditionAgentVersionNotSupported,
		kubevirtv1.ConditionAccessCredentialsSynchronized, kubevirtv1.ConditionSoftwareEmulation, ConditionNetworkLimited} {
		if c := find(o.instance.Status.Conditions, of); c != nil {
			all = append(all, *c)
		}
	}
	return all
}

// pauseReason is why a VM is paused, as KubeVirt spells it, and in words.
func pauseReason(vm *nodev1.VirtualMachine) (reason, message string) {
	s := vm.GetStatus()
	switch s.GetPauseReason() {
	case nodev1.PauseReason_PAUSE_REASON_IO_ERROR:
		if disk := s.GetPauseDisk(); disk != "" {
			return reasonPausedIOError, "disk " + disk + " could not be read or written: mend its volume, or make room in it, and the guest goes on within two minutes"
		}
		return reasonPausedIOError, "a disk could not be read or written: mend its volume, or make room in it, and the guest goes on within two minutes"
	case nodev1.PauseReason_PAUSE_REASON_IMAGE_DAMAGED, nodev1.PauseReason_PAUSE_REASON_OTHER:
		return reasonPaused, s.GetMessage()
	}
	return reasonPausedByUser, "the guest was paused, or started paused: it goes on when it is resumed"
}
