package validation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/spec"
)

// minMemoryRequest is the least memory that a pod may request: 1M.
const minMemoryRequest = 1_000_000

func processor(s *kubevirtv1.VirtualMachineInstanceSpec, domain *field.Path) (faults field.ErrorList) {
	cpu, at := s.Domain.CPU, domain.Child("cpu")
	if cpu == nil {
		return nil
	}
	vcpus := int64(1)
	for _, n := range []int32{max(cpu.Sockets, cpu.MaxSockets), cpu.Cores, cpu.Threads} {
		vcpus = min(vcpus*int64(max(n, 1)), 1<<31)
	}
	if cpu.MaxSockets != 0 && cpu.MaxSockets < max(cpu.Sockets, 1) {
		faults = append(faults, field.Invalid(at.Child("maxSockets"), cpu.MaxSockets, fmt.Sprintf("is less than cpu.sockets, %d", max(cpu.Sockets, 1))))
	}
	if vcpus > spec.MaxVCPUs {
		faults = append(faults, field.Invalid(at, fmt.Sprintf("%d sockets × %d cores × %d threads", max(cpu.Sockets, cpu.MaxSockets), cpu.Cores, cpu.Threads), fmt.Sprintf("a VM has at most %d vCPUs", spec.MaxVCPUs)))
	}
	faults = append(faults, dedicated(s, vcpus, domain)...)
	if cpu.NUMA != nil && cpu.NUMA.GuestMappingPassthrough != nil {
		faults = append(faults, guestMappingPassthrough(s, domain)...)
	}
	faults = append(faults, labelPart(cpu.Model, at.Child("model"))...)
	seen := make(map[string]bool)
	for i, f := range cpu.Features {
		name := at.Child("features").Index(i).Child("name")
		switch {
		case f.Name == "":
			faults = append(faults, field.Required(name, "want a CPU feature such as vmx"))
		case seen[f.Name]:
			faults = append(faults, field.Duplicate(name, short(f.Name)))
		default:
			faults = append(faults, labelPart(f.Name, name)...)
		}
		seen[f.Name] = true
	}
	return faults
}

// dedicated wants CPUs that a pod can be given whole: as many as the guest has.
func dedicated(s *kubevirtv1.VirtualMachineInstanceSpec, vcpus int64, domain *field.Path) (faults field.ErrorList) {
	cpu, at := s.Domain.CPU, domain.Child("cpu")
	if !cpu.DedicatedCPUPlacement {
		if cpu.IsolateEmulatorThread {
			faults = append(faults, field.Invalid(at.Child("isolateEmulatorThread"), true, "only with cpu.dedicatedCpuPlacement: set that, too, or leave it out"))
		}
		return faults
	}
	if cpu.MaxSockets > max(cpu.Sockets, 1) {
		faults = append(faults, field.Invalid(at.Child("maxSockets"), cpu.MaxSockets, "vCPUs that are added while the VM runs have no CPU of their own: leave it out, or leave out cpu.dedicatedCpuPlacement"))
	}
	named := cpu.Sockets != 0 || cpu.Cores != 0 || cpu.Threads != 0
	if limit, limited := s.Domain.Resources.Limits[corev1.ResourceCPU]; !named && limited {
		vcpus = limit.Value() // the guest has as many as its resources say
	} else if request, requested := s.Domain.Resources.Requests[corev1.ResourceCPU]; !named && requested {
		vcpus = request.Value()
	}
	for _, list := range []struct {
		name string
		of   corev1.ResourceList
	}{{"requests", s.Domain.Resources.Requests}, {"limits", s.Domain.Resources.Limits}} {
		if q, set := list.of[corev1.ResourceCPU]; set && q.CmpInt64(vcpus) != 0 {
			faults = append(faults, field.Invalid(domain.Child("resources", list.name).Key("cpu"), q.String(),
				fmt.Sprintf("each of the guest's %d vCPUs has a CPU to itself (cpu.dedicatedCpuPlacement): want %d, or leave it out", vcpus, vcpus)))
		}
	}
	return faults
}

// guestMappingPassthrough wants CPUs and memory that are in some NUMA node for good.
func guestMappingPassthrough(s *kubevirtv1.VirtualMachineInstanceSpec, domain *field.Path) (faults field.ErrorList) {
	at := domain.Child("cpu", "numa", "guestMappingPassthrough")
	if !s.Domain.CPU.DedicatedCPUPlacement {
		faults = append(faults, field.Forbidden(at, "only with cpu.dedicatedCpuPlacement: set that, too, or leave it out"))
	}
	if s.Domain.Memory == nil || s.Domain.Memory.Hugepages == nil {
		faults = append(faults, field.Forbidden(at, "only with memory.hugepages: set that, too, or leave it out"))
	}
	return faults
}

// labelPart wants what nodes' labels can name: models, features and machine types are
// found by them, some behind the name of a hypervisor.
func labelPart(name string, at *field.Path) field.ErrorList {
	const most = validation.LabelValueMaxLength - len(spec.HypervisorEmulation+".")
	if name == "" || len(name) <= most && len(validation.IsQualifiedName(name)) == 0 && !strings.Contains(name, "/") {
		return nil
	}
	return field.ErrorList{field.Invalid(at, short(name), fmt.Sprintf("want at most %d letters, digits, '-', '_' and '.', with a letter or digit first and last", most))}
}

// memory wants the guest's to be known, and to fit the pod's limit.
func memory(s *kubevirtv1.VirtualMachineInstanceSpec, domain *field.Path) field.ErrorList {
	at := domain.Child("memory", "guest")
	limit, limited := s.Domain.Resources.Limits[corev1.ResourceMemory]
	_, requested := s.Domain.Resources.Requests[corev1.ResourceMemory]
	m := s.Domain.Memory
	switch {
	case m == nil || m.Guest == nil:
		if limited || requested {
			return nil
		}
		return field.ErrorList{field.Required(at, "the guest's memory has to be set, here or by resources.requests.memory")}
	case m.Guest.CmpInt64(spec.MinMemory) < 0:
		return field.ErrorList{field.Invalid(at, m.Guest.String(), "want at least 1Mi")}
	case m.Guest.CmpInt64(spec.MaxMemory) > 0:
		return field.ErrorList{field.Invalid(at, m.Guest.String(), "want at most "+spec.FormatQuantity(spec.MaxMemory))}
	case limited && m.Guest.Cmp(limit) > 0:
		return field.ErrorList{field.Invalid(at, m.Guest.String(), "the guest has more memory than resources.limits.memory, "+limit.String()+": raise the limit or leave it out")}
	}
	return nil
}

func resources(s *kubevirtv1.VirtualMachineInstanceSpec, at *field.Path) (faults field.ErrorList) {
	r := s.Domain.Resources
	for _, list := range []struct {
		name string
		of   corev1.ResourceList
	}{{"requests", r.Requests}, {"limits", r.Limits}} {
		for _, name := range slices.Sorted(maps.Keys(list.of)) {
			faults = append(faults, quantity(name, list.of[name], at.Child(list.name).Key(string(name)))...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		request := r.Requests[name]
		if limit, limited := r.Limits[name]; limited && request.Cmp(limit) > 0 {
			faults = append(faults, field.Invalid(at.Child("requests").Key(string(name)), request.String(), "the request is more than the limit, "+limit.String()))
		}
	}
	if request, set := r.Requests[corev1.ResourceMemory]; set && request.CmpInt64(minMemoryRequest) < 0 {
		faults = append(faults, field.Invalid(at.Child("requests").Key("memory"), request.String(), "want at least 1M: memory is in bytes, so did you forget the unit, as in 1Gi?"))
	}
	return faults
}

func quantity(name corev1.ResourceName, q resource.Quantity, at *field.Path) (faults field.ErrorList) {
	for _, fault := range validation.IsQualifiedName(string(name)) {
		faults = append(faults, field.Invalid(at, short(name), fault))
	}
	if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
		faults = append(faults, field.Forbidden(at, "say it as memory.hugepages: the pod then requests as many pages as the guest's memory takes"))
	}
	if q.Sign() < 0 {
		faults = append(faults, field.Invalid(at, q.String(), "want 0 or more"))
	}
	return faults
}
