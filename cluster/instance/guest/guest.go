package guest

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/condition"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/contract"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
)

// Fill fills in what the agent says of a VM that runs.
func Fill(v *view.View, s *kubevirtv1.VirtualMachineInstanceStatus, vm *nodev1.VirtualMachine) {
	effective := vm.GetStatus().GetEffectiveSpec()
	if effective == nil {
		return
	}
	s.VMM = vmmStatus(vm.GetStatus())
	if t := cmp.Or(vm.GetStatus().GetMachineType(), effective.GetMachineType()); t != "" {
		s.Machine = &kubevirtv1.Machine{Type: condition.Clip(t, condition.MaxGuestText)}
	}
	if cpu := effective.GetCpu(); cpu != nil {
		s.CurrentCPUTopology = &kubevirtv1.CPUTopology{Sockets: count(cpu.GetSockets()), Cores: count(cpu.GetCores()), Threads: count(cpu.GetThreads())}
	}
	s.Memory = memoryOf(v, effective)
	s.GuestOSInfo = guestOS(vm.GetStatus().GetGuest().GetOs())
	s.FSFreezeStatus = frozen(vm.GetStatus().GetGuest().GetFsFreezeStatus())
	s.Interfaces = interfacesOf(v, vm)
}

// frozen is the one status that is worth a word.
func frozen(said string) string {
	const word = "frozen"
	if said == word {
		return word
	}
	return ""
}

func memoryOf(v *view.View, spec *specv1.VirtualMachineSpec) *kubevirtv1.MemoryStatus {
	m := &kubevirtv1.MemoryStatus{GuestRequested: RequestedMemory(&v.Instance.Spec.Domain)}
	if size, err := resource.ParseQuantity(condition.Clip(spec.GetMemory().GetSize(), condition.MaxGuestText)); err == nil {
		m.GuestAtBoot, m.GuestCurrent = &size, &size
	}
	if target, err := resource.ParseQuantity(condition.Clip(spec.GetMemory().GetTarget(), condition.MaxGuestText)); err == nil {
		m.GuestCurrent = &target
	}
	if bytes, err := resource.ParseQuantity(v.Pod.Annotations[contract.AnnotationMemoryOverhead]); err == nil {
		overhead := resource.NewQuantity(bytes.Value(), resource.BinarySI)
		m.MemoryOverhead = overhead
	}
	return m
}

// RequestedMemory is what an instance asks for as its guest's memory; nil: it says nothing.
func RequestedMemory(d *kubevirtv1.DomainSpec) *resource.Quantity {
	if d.Memory != nil && d.Memory.Guest != nil {
		q := d.Memory.Guest.DeepCopy()
		return &q
	}
	if q, has := d.Resources.Requests[corev1.ResourceMemory]; has {
		q = q.DeepCopy()
		return &q
	}
	return nil
}

func guestOS(os *nodev1.GuestOS) *kubevirtv1.GuestOSInfo {
	if os == nil {
		return nil
	}
	bound := func(s string) string { return condition.Clip(s, condition.MaxGuestText) }
	return &kubevirtv1.GuestOSInfo{
		Name: bound(os.GetName()), ID: bound(os.GetId()), PrettyName: bound(os.GetPrettyName()),
		Version: bound(os.GetVersion()), VersionID: bound(os.GetVersionId()),
		KernelRelease: bound(os.GetKernelRelease()), KernelVersion: bound(os.GetKernelVersion()), Machine: bound(os.GetMachine()),
	}
}

// vmmStatus is nil where the agent does not say which VMM runs the guest.
func vmmStatus(vm *nodev1.VirtualMachineStatus) *kubevirtv1.VMMStatus {
	if vm.GetVmm().GetName() == "" {
		return nil
	}
	return &kubevirtv1.VMMStatus{
		Name: condition.Clip(vm.GetVmm().GetName(), condition.MaxGuestText), Version: condition.Clip(vm.GetVmm().GetVersion(), condition.MaxGuestText), Hypervisor: condition.Clip(vm.GetHypervisor(), condition.MaxGuestText),
	}
}
