package launcher

import (
	"cmp"
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
)

// bootDelay is how many seconds later than asked for a guest is first probed, as with KubeVirt:
// the container starts before the guest.
const bootDelay = 10

// probe is the kubelet's: it connects to the pod's address, where the guest's ports are.
func probe(p *kubevirtv1.Probe) *corev1.Probe {
	if p == nil {
		return nil
	}
	return &corev1.Probe{
		ProbeHandler:        corev1.ProbeHandler{HTTPGet: p.HTTPGet.DeepCopy(), TCPSocket: p.TCPSocket.DeepCopy()},
		InitialDelaySeconds: min(p.InitialDelaySeconds, math.MaxInt32-bootDelay) + bootDelay,
		TimeoutSeconds:      p.TimeoutSeconds,
		PeriodSeconds:       p.PeriodSeconds,
		SuccessThreshold:    p.SuccessThreshold,
		FailureThreshold:    p.FailureThreshold,
	}
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
	for name, p := range map[string]*kubevirtv1.Probe{"livenessProbe": l.vmi.Spec.LivenessProbe, "readinessProbe": l.vmi.Spec.ReadinessProbe} {
		if p != nil && p.HTTPGet == nil && p.TCPSocket == nil {
			faults = append(faults, field.Required(field.NewPath("spec", name), "set httpGet or tcpSocket: vmlet has no other probes yet"))
		}
	}
	return faults.ToAggregate()
}
