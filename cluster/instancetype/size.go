package instancetype

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

func (s *sizing) place(spec *kubevirtv1.VirtualMachineInstanceSpec, at *field.Path) {
	if s.of.NodeSelector != nil {
		if spec.NodeSelector != nil {
			s.conflict(at.Child("nodeSelector"), field.OmitValueType{})
		}
		spec.NodeSelector = s.of.NodeSelector
	}
	if s.of.SchedulerName != "" {
		takeValue(s, &spec.SchedulerName, &s.of.SchedulerName, at.Child("schedulerName"))
	}
}

// processors are the instancetype's, whatever it says of them: their number is set always.
func (s *sizing) processors(d *kubevirtv1.DomainSpec, at *field.Path) {
	s.resource(d, corev1.ResourceCPU, at)
	cpu, own, below := made(&d.CPU), s.of.CPU, at.Child("cpu")
	for _, part := range []struct {
		name  string
		value int32
	}{{"sockets", cpu.Sockets}, {"cores", cpu.Cores}, {"threads", cpu.Threads}} {
		if part.value != 0 {
			s.conflict(below.Child(part.name), part.value)
		}
	}
	takeValue(s, &cpu.Model, own.Model, below.Child("model"))
	takeValue(s, &cpu.DedicatedCPUPlacement, own.DedicatedCPUPlacement, below.Child("dedicatedCPUPlacement"))
	takeValue(s, &cpu.IsolateEmulatorThread, own.IsolateEmulatorThread, below.Child("isolateEmulatorThread"))
	take(s, &cpu.NUMA, own.NUMA, below.Child("numa"))
	take(s, &cpu.Realtime, own.Realtime, below.Child("realtime"))
	if own.MaxSockets != nil {
		cpu.MaxSockets = *own.MaxSockets // KubeVirt lets it pass, too
	}
}

func (s *sizing) memory(d *kubevirtv1.DomainSpec, at *field.Path) {
	s.resource(d, corev1.ResourceMemory, at)
	memory, own, below := made(&d.Memory), s.of.Memory, at.Child("memory")
	if size := &own.Guest; !size.IsZero() { // Go programs write one that was not set as 0
		take(s, &memory.Guest, size, below.Child("guest"))
	}
	take(s, &memory.Hugepages, own.Hugepages, below.Child("hugepages"))
	take(s, &memory.MaxGuest, own.MaxGuest, below.Child("maxGuest"))
	if own.OvercommitPercent > 0 && !own.Guest.IsZero() && len(s.faults) == 0 {
		if d.Resources.Requests == nil {
			d.Resources.Requests = make(corev1.ResourceList)
		}
		d.Resources.Requests[corev1.ResourceMemory] = *resource.NewQuantity(less(own.Guest.Value(), own.OvercommitPercent), own.Guest.Format)
	}
}

// less returns an amount without so many per cent, in parts that don't overflow.
func less(amount int64, percent int) int64 {
	rest := int64(100 - min(max(percent, 0), 100))
	return amount/100*rest + amount%100*rest/100
}

// resource is asked of the node by the instancetype, and not by the VM.
func (s *sizing) resource(d *kubevirtv1.DomainSpec, name corev1.ResourceName, at *field.Path) {
	for _, list := range []struct {
		name string
		of   corev1.ResourceList
	}{{"requests", d.Resources.Requests}, {"limits", d.Resources.Limits}} {
		if amount, set := list.of[name]; set {
			s.conflicts(at.Child("resources", list.name, string(name)), amount.String(), string(name)+".guest, and what its pod asks of the node with that")
		}
	}
}

func (s *sizing) devices(d *kubevirtv1.DomainSpec, at *field.Path) {
	take(s, &d.IOThreadsPolicy, s.of.IOThreadsPolicy, at.Child("ioThreadsPolicy"))
	if s.of.IOThreads != nil && s.of.IOThreads.SupplementalPoolThreadCount != nil {
		take(s, &made(&d.IOThreads).SupplementalPoolThreadCount, s.of.IOThreads.SupplementalPoolThreadCount, at.Child("ioThreads", "supplementalPoolThreadCount"))
	}
	//lint:ignore SA1019 instancetypes still have it
	take(s, &d.LaunchSecurity, s.of.LaunchSecurity, at.Child("launchSecurity"))
	takeList(s, &d.Devices.GPUs, s.of.GPUs, at.Child("devices", "gpus"))
	takeList(s, &d.Devices.HostDevices, s.of.HostDevices, at.Child("devices", "hostDevices"))
}

func takeList[T any](s *sizing, to *[]T, from []T, at *field.Path) {
	switch {
	case len(from) == 0:
	case len(*to) > 0:
		s.conflict(at, field.OmitValueType{})
	default:
		*to = from
	}
}

// made returns what a field points to, which is made where there is nothing.
func made[T any](field **T) *T {
	if *field == nil {
		*field = new(T)
	}
	return *field
}
