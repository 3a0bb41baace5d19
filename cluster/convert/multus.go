package convert

import (
	"slices"
	"strings"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/multus"
	"github.com/vmlet/vmlet/spec"
)

// InterfaceMAC is the address that a guest has on a network: the one that the instance gives it,
// else one that stays for the VM's life. A guest that is bridged to the pod's default network
// has its pod's, which nobody knows before the pod is there: it is empty then. Other networks
// are asked for the guest's.
func InterfaceMAC(vmi *kubevirtv1.VirtualMachineInstance, on *kubevirtv1.Network) string {
	all := vmi.Spec.Domain.Devices.Interfaces
	at := slices.IndexFunc(all, func(i kubevirtv1.Interface) bool { return i.Name == on.Name })
	switch {
	case at < 0:
	case all[at].MACAddress != "":
		return strings.ReplaceAll(strings.ToLower(all[at].MACAddress), "-", ":")
	case all[at].Bridge != nil && multus.IsDefault(on):
		return ""
	}
	return MAC(UUID(vmi), on.Name)
}

// queues is how many an interface has with multiqueue: one for each vCPU, as with KubeVirt, up
// to what a specification may have for one and for all. Only virtio has several; 0 is the default of one.
func queues(vmi *kubevirtv1.VirtualMachineInstance, iface *kubevirtv1.Interface) uint32 {
	wanted := vmi.Spec.Domain.Devices.NetworkInterfaceMultiqueue
	if wanted == nil || !*wanted || iface.Model != "" && iface.Model != spec.NetVirtio {
		return 0
	}
	share := max(spec.MaxPodQueues/len(vmi.Spec.Domain.Devices.Interfaces), 1)
	vcpus := spec.VCPUs(cpu(vmi.Spec.Domain.CPU))
	if most := min(vcpus, uint64(min(spec.MaxQueues, share))); most > 1 {
		return uint32(most)
	}
	return 0
}
