package validation

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// remarks warns of what is accepted and does not do what it seems to.
func remarks(s *kubevirtv1.VirtualMachineInstanceSpec, at *field.Path) (warnings []string) {
	warn := func(at *field.Path, text string) { warnings = append(warnings, at.String()+" "+text) }
	const accepts = "succeeds whatever the guest does, as QEMU's user-mode network accepts connections itself: use httpGet"
	if p := s.LivenessProbe; p != nil && p.TCPSocket != nil {
		warn(at.Child("livenessProbe", "tcpSocket"), accepts)
	}
	if p := s.ReadinessProbe; p != nil && p.TCPSocket != nil {
		warn(at.Child("readinessProbe", "tcpSocket"), accepts)
	}
	if f := s.Domain.Firmware; f != nil && f.KernelBoot != nil {
		if c := f.KernelBoot.Container; c != nil && c.KernelPath == "" && c.InitrdPath != "" {
			warn(at.Child("domain", "firmware", "kernelBoot"), "has no effect without container.kernelPath: the guest boots from its disks")
		}
	}
	return warnings
}
