package guest

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/view"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	"github.com/vmlet/vmlet/proto/vmlet/node/v1/faults"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
)

// Conditions are what the agent says. While it is not heard, they stay as they are.
func Conditions(v *view.View, phase kubevirtv1.Phase) []kubevirtv1.Condition {
	if view.IsFinal(phase) || v.Pod == nil {
		return nil
	}
	vm := v.Pod.Report.VM
	if !v.Pod.Report.Current || vm == nil || phase != kubevirtv1.PhaseRunning {
		return keptConditions(v)
	}
	var all []kubevirtv1.Condition
	switch was := condition.Find(v.Instance.Status.Conditions, kubevirtv1.ConditionPaused); {
	case vm.GetStatus().GetState() == nodev1.State_STATE_PAUSED:
		reason, message := pauseReason(v)
		all = append(all, condition.New(kubevirtv1.ConditionPaused, metav1.ConditionTrue, reason, message))
	case vm.GetStatus().GetState() == nodev1.State_STATE_SAVING && was != nil:
		all = append(all, *was) // it is paused again if the save fails
	}
	all = append(all, agentConditions(v, vm.GetStatus().GetGuest())...)
	all = append(all, credentialCondition(v, vm.GetStatus().GetGuest().GetCredentials())...)
	if vm.GetStatus().GetHypervisor() == "emulation" {
		all = append(all, condition.New(kubevirtv1.ConditionSoftwareEmulation, metav1.ConditionTrue, condition.ReasonEmulation,
			"the VM is emulated, which is slow: "+condition.Clip(vm.GetStatus().GetHypervisorReason(), 4*condition.MaxMessage)))
	}
	if slices.ContainsFunc(vm.GetStatus().GetEffectiveSpec().GetNetworks(), behindNAT) {
		all = append(all, condition.New(condition.NetworkLimited, metav1.ConditionTrue, condition.ReasonUserNetwork, limits(v)))
	}
	return all
}

// limits is what the guest lacks behind the VMM's own network, and why it is there.
func limits(v *view.View) string {
	text := "the guest is behind QEMU's user-mode network: it reaches others by TCP and UDP, and is reached at the pod's address at the ports listed in spec.domain.devices.interfaces alone, and at no IPv6 address; QEMU accepts connections itself, so that tcpSocket probes succeed whatever the guest does"
	s := v.Pod.Report.VM.GetStatus()
	if why := v.FaultWords(faults.FromProto(s.GetNetworkLimitedFaults()), s.GetNetworkLimited()); why != "" {
		return text + ": " + condition.Clip(why, condition.MaxGuestText)
	}
	return text
}

// agentConditions are those of the agent in the guest. One that has not answered yet may be
// supported.
func agentConditions(v *view.View, g *nodev1.GuestStatus) []kubevirtv1.Condition {
	if !g.GetAgentConnected() {
		return nil
	}
	all := []kubevirtv1.Condition{condition.New(kubevirtv1.ConditionAgentConnected, metav1.ConditionTrue, condition.ReasonAgentConnected, "")}
	if c := g.GetGuestAgentCondition(); c != nil && !c.GetSupported() {
		all = append(all, condition.New(kubevirtv1.ConditionAgentVersionNotSupported, metav1.ConditionTrue, condition.ReasonAgentLacks, condition.Clip(c.GetReason(), condition.MaxMessage)))
	}
	return all
}

// credentialCondition is whether the guest has the Secrets of accessCredentials that its agent
// brings in; none: nobody has said.
func credentialCondition(v *view.View, c *nodev1.GuestCredentials) []kubevirtv1.Condition {
	switch {
	case c == nil:
		return nil
	case c.GetSynchronized():
		return []kubevirtv1.Condition{condition.New(kubevirtv1.ConditionAccessCredentialsSynchronized, metav1.ConditionTrue, condition.ReasonCredentials, "")}
	}
	return []kubevirtv1.Condition{condition.New(kubevirtv1.ConditionAccessCredentialsSynchronized, metav1.ConditionFalse, condition.ReasonNoCredentials,
		v.FaultWords(faults.FromProto(c.GetFaults()), c.GetMessage()))}
}

func behindNAT(n *specv1.NetworkInterface) bool { return n.GetUser() != nil }

// keptConditions are those of the guest's as they were last known.
func keptConditions(v *view.View) []kubevirtv1.Condition {
	var all []kubevirtv1.Condition
	for _, of := range []string{kubevirtv1.ConditionPaused, kubevirtv1.ConditionAgentConnected, kubevirtv1.ConditionAgentVersionNotSupported,
		kubevirtv1.ConditionAccessCredentialsSynchronized, kubevirtv1.ConditionSoftwareEmulation, condition.NetworkLimited} {
		if c := condition.Find(v.Instance.Status.Conditions, of); c != nil {
			all = append(all, *c)
		}
	}
	return all
}

// pauseReason is why a VM is paused, as KubeVirt spells it, and in words.
func pauseReason(v *view.View) (reason, message string) {
	s := v.Pod.Report.VM.GetStatus()
	switch s.GetPauseReason() {
	case nodev1.PauseReason_PAUSE_REASON_IO_ERROR:
		if disk := s.GetPauseDisk(); disk != "" {
			return condition.ReasonPausedIOError, "disk " + disk + " could not be read or written: mend its volume, or make room in it, and the guest goes on within two minutes"
		}
		return condition.ReasonPausedIOError, "a disk could not be read or written: mend its volume, or make room in it, and the guest goes on within two minutes"
	case nodev1.PauseReason_PAUSE_REASON_IMAGE_DAMAGED, nodev1.PauseReason_PAUSE_REASON_OTHER:
		return condition.ReasonPaused, v.FaultWords(faults.FromProto(s.GetFaults()), s.GetMessage())
	}
	return condition.ReasonPausedByUser, "the guest was paused, or started paused: it goes on when it is resumed"
}

// Paused: the agent says so, or has said so before it was lost.
func Paused(v *view.View) bool {
	if s := v.Pod.Report.VM.GetStatus().GetState(); v.Pod.Report.Current && v.Pod.Report.VM != nil && s != nodev1.State_STATE_SAVING {
		return s == nodev1.State_STATE_PAUSED
	}
	return condition.Find(v.Instance.Status.Conditions, kubevirtv1.ConditionPaused) != nil
}
