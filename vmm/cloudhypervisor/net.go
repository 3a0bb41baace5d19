package cloudhypervisor

import (
	"fmt"

	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chvm"
	"github.com/vmlet/vmlet/vmm/spec"
)

// queuePair is one queue to receive and one to send: a tap has one pair.
const queuePair = 2

func (b *builder) networks() {
	for i, n := range b.spec.GetNetworks() {
		field := fmt.Sprintf("networks[%d]", i)
		if n.GetModel() != "" && n.GetModel() != spec.NetVirtio {
			b.faults.Add(field+".model", "%q: cloud-hypervisor has no other than virtio: want that, or use vmm: qemu", n.GetModel())
		}
		if n.Slot != nil {
			b.faults.Add(field+".slot", "with cloud-hypervisor an interface sits where its index says: leave it out, or use vmm: qemu")
		}
		switch {
		case n.GetUser() != nil:
			b.faults.Add(field+".user", "cloud-hypervisor has no network of its own: want a tap in its place (tap: {bridge: NAME}), or use vmm: qemu")
			continue
		case n.GetTap() == nil:
			b.faults.Add(field+".tap", "is missing: cloud-hypervisor has no network of its own: want a tap (tap: {bridge: NAME}), or use vmm: qemu")
			continue
		case i >= len(b.req.Taps) || b.req.Taps[i] < 0:
			b.faults.Add(field+".tap", "no tap device was opened for it")
			continue
		}
		place := chapi.PCI{ID: fmt.Sprintf("net%d", i), Slot: slot(slotsNetwork + i)}
		b.add = append(b.add, chvm.AddNet{Net: chapi.Net{PCI: place, MAC: n.GetMac(), NumQueues: queuePair}, Tap: b.req.Taps[i]})
	}
}
