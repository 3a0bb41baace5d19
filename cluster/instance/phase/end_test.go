package phase

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/scene"
	"github.com/vmlet/vmlet/cluster/instance/view"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// TestEnds: how a VM ended, and what the user reads.
func TestEnds(t *testing.T) {
	noACPI := func(v *kubevirtv1.VirtualMachineInstance) {
		off := false
		v.Spec.Domain.Features = &kubevirtv1.Features{ACPI: kubevirtv1.FeatureState{Enabled: &off}}
	}
	oom := func(p *view.Pod) {
		scene.Exited(137, "")(p)
		p.Status.ContainerStatuses[0].State.Terminated.Reason = "OOMKilled"
	}
	evicted := func(p *view.Pod) {
		scene.Exited(137, "")(p)
		p.Status.Reason, p.Status.Message = "Evicted", "The node was low on resource: memory."
	}
	rejected := func(p *view.Pod) {
		scene.Failed(p)
		scene.Ending(p)
		p.Status.Reason, p.Status.Message = "UnexpectedAdmissionError", "Allocate failed due to no healthy devices"
	}
	sidecar := func(p *view.Pod) {
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "volumeroot", LastTerminationState: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "image quay.io/x has no single disk file under /disk; found: etc, usr"}}}}
	}
	for _, test := range []struct {
		name   string
		in     scene.Scene
		change func(*kubevirtv1.VirtualMachineInstance)
		phase  kubevirtv1.Phase
		says   string
	}{
		{"shutdown", scene.On("", scene.RunsSince(0), scene.EndedBy(nodev1.EndReason_END_REASON_SHUTDOWN), scene.Exited(0, "")), nil, kubevirtv1.PhaseSucceeded, "the guest shut down"},
		{"saved", scene.On("", scene.Exited(0, ""), scene.EndedBy(nodev1.EndReason_END_REASON_SAVED)), nil, kubevirtv1.PhaseSucceeded, "saved"},
		{"killed", scene.On("", scene.Exited(0, ""), scene.EndedBy(nodev1.EndReason_END_REASON_KILLED)), nil, kubevirtv1.PhaseSucceeded, "without a shutdown"},
		{"grace over", scene.On("", scene.Exited(0, ""), scene.EndedBy(nodev1.EndReason_END_REASON_GRACE_PERIOD_OVER)), nil, kubevirtv1.PhaseFailed, "within its grace period"},
		{"grace over, of 0", scene.On("", scene.Exited(0, ""), scene.EndedBy(nodev1.EndReason_END_REASON_GRACE_PERIOD_OVER)), scene.Grace(0), kubevirtv1.PhaseSucceeded, "without a shutdown"},
		{"grace over, no ACPI", scene.On("", scene.Exited(0, ""), scene.EndedBy(nodev1.EndReason_END_REASON_GRACE_PERIOD_OVER)), noACPI, kubevirtv1.PhaseSucceeded, "without a shutdown"},
		{"panicked", scene.On("", scene.Exited(1, ""), scene.EndedBy(nodev1.EndReason_END_REASON_PANICKED)), nil, kubevirtv1.PhaseFailed, "the guest panicked"},
		{"crashed", scene.On("", scene.Exited(1, ""), scene.EndedBy(nodev1.EndReason_END_REASON_CRASHED)), nil, kubevirtv1.PhaseFailed, "QEMU aborted"},
		{"exit code 0", scene.On("", scene.Exited(0, "")), nil, kubevirtv1.PhaseSucceeded, "the guest shut down"},
		{"last words", scene.On("", scene.Exited(1, `{"message":"no","faults":[{"field":"disks[0].path","text":"no such file"}]}`)), nil, kubevirtv1.PhaseFailed, "spec.domain.devices.disks: no such file"},
		{"an older shim's last words", scene.On("", scene.Exited(1, "disks[0].path: no such file")), nil, kubevirtv1.PhaseFailed, "disks[0].path: no such file"},
		{"by a signal, over the console's end", scene.On("", scene.Exited(137, "login: "), scene.Reasoned("Error")), nil, kubevirtv1.PhaseFailed, "signal 9 ended the VM's container"},
		{"the kubelet's words", scene.On("", scene.LostSight, scene.Promised), nil, kubevirtv1.PhaseFailed, "could not be located"},
		{"a runtime that doesn't know", scene.On("", scene.Exited(255, ""), scene.Reasoned("Error"), scene.Promised), nil, kubevirtv1.PhaseFailed, "said nothing"},
		{"no words", scene.On("", scene.Exited(1, "")), nil, kubevirtv1.PhaseFailed, "kubectl logs virt-launcher-web-"},
		{"a sidecar's words", scene.On("", scene.Exited(1, ""), sidecar), nil, kubevirtv1.PhaseFailed, "container volumeroot: image quay.io/x has no single disk file"},
		{"out of memory", scene.On("", oom), nil, kubevirtv1.PhaseFailed, "resources.limits.memory"},
		{"out of memory, heard", scene.On("", oom, scene.EndedBy(nodev1.EndReason_END_REASON_CRASHED)), nil, kubevirtv1.PhaseFailed, "resources.limits.memory"},
		{"shut down, and the kubelet late", scene.On("", oom, scene.EndedBy(nodev1.EndReason_END_REASON_SHUTDOWN)), nil, kubevirtv1.PhaseSucceeded, "the guest shut down"},
		{"evicted, heard", scene.On("", evicted, scene.EndedBy(nodev1.EndReason_END_REASON_GRACE_PERIOD_OVER)), nil, kubevirtv1.PhaseFailed, "was killed; the kubelet evicted the VM's pod: The node was low"},
		{"evicted", scene.On("", evicted), nil, kubevirtv1.PhaseFailed, "the kubelet evicted the VM's pod: The node was low"},
		{"rejected", scene.On("", rejected), nil, kubevirtv1.PhaseFailed, "no healthy devices"},
		{"node deleted", scene.On("", scene.RunsSince(0), scene.NoNode), nil, kubevirtv1.PhaseFailed, "node node-a was deleted"},
		{"node out of service", scene.On("", scene.RunsSince(0), scene.OutOfService, scene.Readiness(corev1.ConditionFalse)), nil, kubevirtv1.PhaseFailed, "node node-a is out of service"},
		{"deleted unbound", scene.On("", scene.Ending), nil, kubevirtv1.PhaseFailed, "deleted before the guest ran"},
	} {
		in := test.in
		if test.change != nil {
			in = in.Change(test.change)
		}
		if phase, f := endOf(in.View); phase != test.phase || !strings.Contains(f.Message, test.says) {
			t.Errorf("%s: %s, %q; want %s, %q", test.name, phase, f.Message, test.phase, test.says)
		}
	}
}
