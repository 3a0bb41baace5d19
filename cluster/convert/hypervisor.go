package convert

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/hypervisor"
	hypervisors "github.com/vmlet/vmlet/hypervisor/standard"
	"github.com/vmlet/vmlet/spec"
)

// Offers are what the nodes have that a VM may be started on. The zero Offers is that nobody has
// looked, or that there is no such node.
type Offers struct {
	// Hypervisors by name: some node can run guests under it, and offers its devices.
	Hypervisors map[string]bool
	// Devices are resources that some node has.
	Devices map[corev1.ResourceName]bool
}

// works is the value of the label of a hypervisor that a node can use without limits.
const works = "works"

// OffersOf are what nodes of an architecture, by Go's name for it, offer now.
func OffersOf(nodes []corev1.Node, arch string) Offers {
	o := Offers{Hypervisors: make(map[string]bool), Devices: make(map[corev1.ResourceName]bool)}
	for i := range nodes {
		n := &nodes[i]
		if n.Spec.Unschedulable || n.DeletionTimestamp != nil || n.Labels[contract.LabelSchedulable] != "true" || n.Labels[corev1.LabelArchStable] != arch {
			continue
		}
		has := func(resource corev1.ResourceName) bool {
			q, listed := n.Status.Allocatable[resource]
			return listed && q.Sign() > 0
		}
		for resource := range n.Status.Allocatable {
			if has(resource) {
				o.Devices[resource] = true
			}
		}
		for _, h := range hypervisors.Registry().All() {
			offered := n.Labels[contract.LabelHypervisorState+h.Name()] == works
			for _, d := range h.DeviceRequests() {
				offered = offered && (d.Optional || has(corev1.ResourceName(d.Resource)))
			}
			o.Hypervisors[h.Name()] = o.Hypervisors[h.Name()] || offered
		}
	}
	return o
}

// Hypervisor is the one that the instance is to run under: that of the image that it goes on from,
// its own word, the cluster's, or KVM. A pod with KVM requests /dev/kvm, and a node whose KVM does not
// work says so instead of emulating the guest.
func Hypervisor(in Input) string {
	if image := RestoreFrom(in.Instance); image != nil && image.Hypervisor != "" {
		return image.Hypervisor
	}
	named := cmp.Or(in.Instance.Annotations[contract.AnnotationHypervisor], in.Configuration.Hypervisor)
	registry := hypervisors.Registry()
	switch name, known := registry.Canonical(named); {
	case known:
		return name
	case named == spec.Auto:
		return in.Offers.best(registry)
	case named != "":
		return named // refused at admission
	case in.Configuration.UseEmulation:
		return spec.HypervisorEmulation
	}
	return spec.HypervisorKVM
}

// best is the first hypervisor, in the order in which nodes prefer them, that is offered; "auto" where
// none is: the VM's node chooses.
func (o Offers) best(registry *hypervisor.Registry) string {
	for _, h := range registry.All() {
		if o.Hypervisors[h.Name()] {
			return h.Name()
		}
	}
	return spec.Auto
}
