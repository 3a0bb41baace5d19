package cloudhypervisor

import (
	"fmt"

	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
)

// queuePair is one queue to receive and one to send: a tap has one pair for each of its
// descriptors.
const queuePair = 2

func (b *builder) networks() {
	for i := range b.spec.GetNetworks() {
		if add := b.network(i); add != nil {
			b.add = append(b.add, *add)
		}
	}
}

// network sits where its slot says, which is in its id as well; nil: it can't be had.
func (b *builder) network(index int) *wire.AddNet {
	n, field := b.spec.GetNetworks()[index], fmt.Sprintf("networks[%d]", index)
	if n.GetModel() != "" && n.GetModel() != spec.NetVirtio {
		b.lacks(field+".model", "%q: cloud-hypervisor has no other than virtio: want that", n.GetModel())
	}
	if n.GetBootOrder() != 0 {
		b.lacks(field+".bootOrder", "%d: cloud-hypervisor's firmware boots from disks alone: leave it out", n.GetBootOrder())
	}
	number := spec.Slot(b.spec.GetNetworks(), index)
	if number >= networksAtMost {
		b.faults.Add(field+".slot", "%d: with cloud-hypervisor there are places from 0 to %d for interfaces: leave it out, and one is chosen", number, networksAtMost-1)
	}
	tap := -1
	if index < len(b.req.Taps) {
		tap = b.req.Taps[index]
	}
	switch {
	case n.GetUser() != nil:
		b.lacks(field+".user", "cloud-hypervisor has no network of its own: want a tap in its place (tap: {bridge: NAME})")
		return nil
	case n.GetPod() != nil && tap < 0:
		b.faults.Add(field+".pod", vmm.NoPod)
		return nil
	case n.GetPod().GetLinkDown():
		b.lacks(field+".pod.linkDown", "cloud-hypervisor's links are always up: leave it out")
		return nil
	case uint64(n.GetPod().GetQueues()) > spec.VCPUs(b.spec.GetCpu()):
		b.faults.Add(field+".pod.queues", "%d: cloud-hypervisor wants no more than there are vCPUs", n.GetPod().GetQueues())
		return nil
	case n.GetPod() != nil:
	case n.GetTap() == nil:
		b.lacks(field+".tap", "is missing: cloud-hypervisor has no network of its own: want a tap (tap: {bridge: NAME})")
		return nil
	case tap < 0:
		b.faults.Add(field+".tap", "no tap device was opened for it")
		return nil
	}
	place := chapi.PCI{ID: networkID(number), Slot: slot(slotsNetwork + number)}
	queues := queuePair * int(max(n.GetPod().GetQueues(), 1))
	return &wire.AddNet{Net: chapi.Net{PCI: place, MAC: n.GetMac(), NumQueues: queues}, Tap: tap}
}

func networkID(slot int) string { return fmt.Sprintf("net%d", slot) }
