package validation

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/cluster/multus"
	"github.com/vmlet/vmlet/spec"
)

// differences returns warnings about what is accepted, and is otherwise in the guest than it
// was written.
func differences(s *kubevirtv1.VirtualMachineInstanceSpec, at *field.Path) (warnings []string) {
	domain := at.Child("domain")
	if m := s.Domain.Machine; m != nil {
		if known := convert.KnownMachine(m.Type); known != m.Type {
			warnings = append(warnings, fmt.Sprintf("%s: %s is a machine type of Red Hat's QEMU alone: the guest has %s", domain.Child("machine", "type"), short(m.Type), known))
		}
	}
	for i, d := range s.Domain.Devices.Disks {
		if room := spec.SerialRoom(string(diskBus(d))); len(d.Serial) > room && len(d.Serial) <= maxSerial {
			warnings = append(warnings, fmt.Sprintf("%s: the guest sees its first %d characters", domain.Child("devices", "disks").Index(i).Child("serial"), room))
		}
	}
	return append(warnings, ineffective(s, at)...)
}

// ineffective warns of what is accepted and does not do what it seems to.
func ineffective(s *kubevirtv1.VirtualMachineInstanceSpec, at *field.Path) (warnings []string) {
	warn := func(at *field.Path, text string) { warnings = append(warnings, at.String()+" "+text) }
	for i, nic := range s.Domain.Devices.Interfaces {
		if nic.Bridge != nil && onPodNetwork(s, nic.Name) {
			warn(at.Child("domain", "devices", "interfaces").Index(i).Child("bridge"), "keeps the guest from being saved, as its address goes with its pod: use masquerade if it is to be")
		}
	}
	if f := s.Domain.Firmware; f != nil && f.KernelBoot != nil {
		if c := f.KernelBoot.Container; c != nil && c.KernelPath == "" && c.InitrdPath != "" {
			warn(at.Child("domain", "firmware", "kernelBoot"), "has no effect without container.kernelPath: the guest boots from its disks")
		}
	}
	return warnings
}

func onPodNetwork(s *kubevirtv1.VirtualMachineInstanceSpec, name string) bool {
	return slices.ContainsFunc(s.Networks, func(n kubevirtv1.Network) bool { return n.Name == name && multus.IsDefault(&n) })
}
