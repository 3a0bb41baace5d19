package launcher

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/hypervisor/emulation"
	"github.com/vmlet/vmlet/hypervisor/kvm"
	hypervisors "github.com/vmlet/vmlet/hypervisor/standard"
	"github.com/vmlet/vmlet/spec"
)

// ownStorage is what a pod writes to its node's disk beside the guest's disks, in bytes: logs,
// images of files, vmlet-shim for other containers, the tables of an overlay.
const ownStorage = 50 << 20

// resources of the container that runs the VM: what the instance says, and what follows from
// its guest.
func (l *launcher) resources() corev1.ResourceRequirements {
	given := l.vmi.Spec.Domain.Resources
	r := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	for name, q := range given.Requests {
		r.Requests[name] = q.DeepCopy()
	}
	for name, q := range given.Limits {
		r.Limits[name] = q.DeepCopy()
	}
	l.memory(r)
	l.cpu(r)
	l.storage(r)
	for _, device := range l.devices() {
		r.Limits[device] = resource.MustParse("1")
	}
	return r
}

// quotaMemory is the limit that a namespace wants, in pods' requests (KubeVirt's).
const quotaMemory = 2

// memory is the guest's, which is in the container's tmpfs and so counts as the container's,
// and the overhead. There is a limit only where the instance gives one or its namespace wants
// one.
func (l *launcher) memory(r corev1.ResourceRequirements) {
	guest := l.guestMemory()
	if page := l.hugePage(); page != "" {
		pages := corev1.ResourceName(corev1.ResourceHugePagesPrefix + page)
		r.Requests[pages], r.Limits[pages] = bytes(guest), bytes(guest)
		guest = 0
		// What the instance says is the guest's, too.
		delete(r.Requests, corev1.ResourceMemory)
		if _, limited := r.Limits[corev1.ResourceMemory]; limited {
			r.Limits[corev1.ResourceMemory] = bytes(0)
		}
	}
	if q, given := r.Requests[corev1.ResourceMemory]; given {
		r.Requests[corev1.ResourceMemory] = bytes(q.Value() + l.overhead.request)
	} else {
		share := int64(l.Configuration.MemoryOvercommit) // 100 is all of it, 50 twice as much
		r.Requests[corev1.ResourceMemory] = bytes(guest/share*100 + guest%share*100/share + l.overhead.request)
	}
	if q, given := r.Limits[corev1.ResourceMemory]; given {
		// The guest's memory is in whole MiB, and may be a little above a limit equal to it.
		limit := max(q.Value(), guest) + l.overhead.limit
		request := r.Requests[corev1.ResourceMemory]
		r.Limits[corev1.ResourceMemory], r.Requests[corev1.ResourceMemory] = bytes(limit), bytes(min(request.Value(), limit))
	} else if l.LimitMemory {
		request := r.Requests[corev1.ResourceMemory]
		r.Limits[corev1.ResourceMemory] = bytes(max(quotaMemory*request.Value(), guest+l.overhead.limit))
	}
	switch {
	case l.dedicated():
		all := guest + l.overhead.limit
		if _, given := l.vmi.Spec.Domain.Resources.Limits[corev1.ResourceMemory]; given {
			all = max(all, r.Limits.Memory().Value())
		}
		r.Requests[corev1.ResourceMemory], r.Limits[corev1.ResourceMemory] = bytes(all), bytes(all)
	case l.guaranteed():
		r.Requests[corev1.ResourceMemory] = r.Limits[corev1.ResourceMemory].DeepCopy()
	}
}

// hugePage is the size of the pages that the guest's memory is in, as Kubernetes writes it: 2Mi; empty:
// ordinary ones.
func (l *launcher) hugePage() string { return l.spec.GetMemory().GetHugePages().GetPageSize() }

// guestMemory in bytes, as the specification has it.
func (l *launcher) guestMemory() int64 {
	size, err := spec.ParseQuantity(l.spec.GetMemory().GetSize())
	if err != nil {
		return 0 // convert has written it
	}
	return int64(size)
}

// cpu is a share of a CPU for each of the guest's, unless the instance says otherwise.
func (l *launcher) cpu(r corev1.ResourceRequirements) {
	vcpus := int64(spec.VCPUs(l.spec.GetCpu()))
	if l.dedicated() {
		if l.spec.GetCpu().GetDedicated().GetIsolateEmulatorThread() {
			vcpus++
			if l.even() && vcpus%2 != 0 {
				vcpus++
			}
		}
		r.Requests[corev1.ResourceCPU] = *resource.NewQuantity(vcpus, resource.DecimalSI)
		r.Limits[corev1.ResourceCPU] = *resource.NewQuantity(vcpus, resource.DecimalSI)
		return
	}
	if l.guaranteed() {
		r.Requests[corev1.ResourceCPU] = r.Limits[corev1.ResourceCPU].DeepCopy()
		return
	}
	if _, given := r.Limits[corev1.ResourceCPU]; !given && l.LimitCPU {
		limit := *resource.NewQuantity(vcpus, resource.DecimalSI)
		if request := r.Requests[corev1.ResourceCPU]; request.Cmp(limit) > 0 {
			limit = request.DeepCopy()
		}
		r.Limits[corev1.ResourceCPU] = limit
	}
	if _, given := r.Requests[corev1.ResourceCPU]; given {
		return
	}
	request := resource.NewMilliQuantity(vcpus*1000/max(int64(l.Configuration.CPUAllocationRatio), 1), resource.DecimalSI)
	if configured := l.Configuration.CPURequest; configured != nil {
		request = configured
	}
	if limit, given := r.Limits[corev1.ResourceCPU]; given && request.Cmp(limit) > 0 {
		request = &limit
	}
	r.Requests[corev1.ResourceCPU] = request.DeepCopy()
}

// even: the number of CPUs is to be, as nodes want it that hand out whole cores alone.
func (l *launcher) even() bool {
	_, asked := l.vmi.Annotations[contract.AnnotationEvenCPUs]
	return asked || l.Configuration.EvenCPUs
}

// dedicated: each of the guest's CPUs has one of the node's to itself, so that the pod's
// requests are its limits.
func (l *launcher) dedicated() bool {
	c := l.vmi.Spec.Domain.CPU
	return c != nil && c.DedicatedCPUPlacement
}

// guaranteed: the pod's quality of service is to be Guaranteed, as the instance gives limits
// of both and no other requests.
func (l *launcher) guaranteed() bool {
	given := l.vmi.Spec.Domain.Resources
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		limit, limited := given.Limits[name]
		request, requested := given.Requests[name]
		if !limited || requested && request.Cmp(limit) != 0 {
			return l.dedicated()
		}
	}
	return true
}

// storage counts empty disks with all that the guest may write to them. Overlays can't be
// counted, as what they lie over is not known here. There is no limit, and the volumes have
// no sizeLimit: the kubelet would end the VM for a guest that writes to its disk. A node that
// runs out of room evicts pods above their requests first.
func (l *launcher) storage(r corev1.ResourceRequirements) {
	own := int64(ownStorage)
	for _, d := range l.preparation.Disks {
		if d.Raw != nil && isMade(l.pathOf(d.Name)) {
			own += d.Raw.Size
		}
	}
	for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
		if q, given := list[corev1.ResourceEphemeralStorage]; given {
			list[corev1.ResourceEphemeralStorage] = bytes(q.Value() + own)
		}
	}
	if _, given := r.Requests[corev1.ResourceEphemeralStorage]; !given {
		r.Requests[corev1.ResourceEphemeralStorage] = bytes(own)
	}
}

// devices are the resources of nodes' devices that the VM can't do without, and those optional ones
// that it uses and some node has: where none has them it runs without.
func (l *launcher) devices() (resources []corev1.ResourceName) {
	h, known := hypervisors.Registry().Get(l.spec.Hypervisor)
	switch {
	case known:
	case l.Configuration.UseEmulation: // "auto", and no node has been found
		h = emulation.Emulation{}
	default:
		h = kvm.KVM{}
	}
	resources = requested(h.DeviceRequests(), l.Offers.Devices)
	if l.vmi.Annotations[contract.AnnotationVhostNet] == "true" {
		resources = append(resources, contract.ResourceVhostNet)
	}
	return resources
}

// requested are the resources of a hypervisor's devices: optional ones that a pod opens, where offered.
func requested(devices []hypervisor.DeviceRequest, offered map[corev1.ResourceName]bool) (resources []corev1.ResourceName) {
	for _, d := range devices {
		name := corev1.ResourceName(d.Resource)
		if !d.Optional || offered[name] && !byOthers(name) {
			resources = append(resources, name)
		}
	}
	return resources
}

// byOthers: an optional device that a pod need not open. The node's agent makes taps for it, and packets
// go by vhost-net only where the instance says so, as a guest's memory image depends on it.
func byOthers(name corev1.ResourceName) bool {
	return slices.Contains([]corev1.ResourceName{contract.ResourceTUN, contract.ResourceVhostNet, contract.ResourceVhostVsock}, name)
}

// handoutResources are those of containers of other images. They have limits where the VM's
// container has, so that the pod's quality of service is that container's, and a quota on
// limits does not refuse the pod.
func (l *launcher) handoutResources() corev1.ResourceRequirements {
	_, limited := l.vmi.Spec.Domain.Resources.Limits[corev1.ResourceCPU]
	r := handoutResources(l.Configuration, configuration.SupportContainerDisk, limited || l.LimitCPU || l.dedicated())
	if l.guaranteed() {
		r.Requests = r.Limits.DeepCopy()
	}
	return r
}

func bytes(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.BinarySI) }
