package launcher

import (
	"cmp"
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/contract"
)

// bootDelay is how many seconds later than asked for a guest is first probed, as with KubeVirt:
// the container starts before the guest.
const bootDelay = 10

// probeMemory is what a probe of the guest agent's takes in the VM's container while it runs,
// in bytes: vmlet-shim once more. Two may run at once.
const probeMemory = 8 << 20

// probe is the kubelet's. It connects to the pod's address, where the guest's ports are, or
// has vmlet-shim ask the guest's agent. liveness: a guest that fails it is ended.
func (l *launcher) probe(p *kubevirtv1.Probe, liveness bool) *corev1.Probe {
	if p == nil || convert.AsksAgent(p) && l.vmi.Annotations[contract.AnnotationPauseProbes] == "true" {
		return nil
	}
	out := &corev1.Probe{
		ProbeHandler:        corev1.ProbeHandler{HTTPGet: p.HTTPGet.DeepCopy(), TCPSocket: p.TCPSocket.DeepCopy()},
		InitialDelaySeconds: min(p.InitialDelaySeconds, math.MaxInt32-bootDelay) + bootDelay,
		TimeoutSeconds:      p.TimeoutSeconds,
		PeriodSeconds:       p.PeriodSeconds,
		SuccessThreshold:    p.SuccessThreshold,
		FailureThreshold:    p.FailureThreshold,
	}
	if convert.AsksAgent(p) {
		within := max(p.TimeoutSeconds, 1)
		out.Exec = &corev1.ExecAction{Command: agentProbe(p, within, liveness)}
		out.TimeoutSeconds = min(within, math.MaxInt32-agentDelay) + agentDelay
	}
	return out
}

// agentDelay is how many seconds a probe takes beside the guest's: its program has to start.
const agentDelay = 1

// agentProbe asks the guest's agent to answer, or to run a program.
func agentProbe(p *kubevirtv1.Probe, seconds int32, liveness bool) []string {
	command := []string{program, "probe", "--timeout", fmt.Sprintf("%ds", seconds)}
	if liveness {
		command = append(command, "--liveness")
	}
	if p.Exec != nil {
		command = append(append(command, "--"), p.Exec.Command...)
	}
	return command
}

// probesMemory is what probes of the guest's agent take.
func probesMemory(s *kubevirtv1.VirtualMachineInstanceSpec) (bytes int64) {
	for _, p := range []*kubevirtv1.Probe{s.LivenessProbe, s.ReadinessProbe} {
		if convert.AsksAgent(p) {
			bytes += probeMemory
		}
	}
	return bytes
}

func protocol(name string) corev1.Protocol {
	return corev1.Protocol(cmp.Or(name, string(corev1.ProtocolTCP)))
}

// check finds what convert has not looked at.
func (l *launcher) check() error {
	var faults field.ErrorList
	for i := range l.vmi.Spec.Volumes {
		v := &l.vmi.Spec.Volumes[i]
		name := convert.ClaimName(v)
		if _, there := l.Claims[name]; name != "" && !there {
			faults = append(faults, field.NotFound(field.NewPath("spec", "volumes").Index(i), "PersistentVolumeClaim "+name))
		}
	}
	faults = append(faults, l.hibernationFaults()...)
	for name, p := range map[string]*kubevirtv1.Probe{"livenessProbe": l.vmi.Spec.LivenessProbe, "readinessProbe": l.vmi.Spec.ReadinessProbe} {
		if p != nil && p.HTTPGet == nil && p.TCPSocket == nil && !convert.AsksAgent(p) {
			faults = append(faults, field.Required(field.NewPath("spec", name), "set httpGet, tcpSocket, exec or guestAgentPing"))
		}
	}
	for _, c := range convert.AgentCredentials(l.vmi) {
		for _, problem := range validation.IsDNS1123Subdomain(c.Secret) { // it becomes a path
			faults = append(faults, field.Invalid(field.NewPath("spec", "accessCredentials"), c.Secret, problem))
		}
	}
	return faults.ToAggregate()
}
