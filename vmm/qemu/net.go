package qemu

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/vmlet/vmlet/plan"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
)

func (b *builder) networks() {
	for i := range b.spec.GetNetworks() {
		b.network(i)
	}
}

func (b *builder) network(index int) {
	n := b.spec.GetNetworks()[index]
	slot := spec.Slot(b.spec.GetNetworks(), index)
	field, backend := fmt.Sprintf("networks[%d]", index), networkID(slot)
	switch {
	case n.GetTap() != nil:
		b.tap(field+".tap", backend, index)
	case n.GetPod() != nil:
		b.podNetwork(field+".pod", backend, index)
	default:
		b.userNetwork(field, backend, n.GetUser())
	}
	if n.GetPod().GetLinkDown() && b.req.Image == nil { // an image has the link's state
		b.first = append(b.first, command("set_link", options{"name": deviceID(backend), "up": false}))
	}
	o := options{"id": deviceID(backend), "netdev": backend, "mac": n.GetMac()}
	switch {
	case n.GetBootOrder() != 0:
		o["bootindex"] = n.GetBootOrder()
	case b.bus.root != "":
		// No boot ROM where nothing boots from it: it would be a part of every
		// saved state.
		o["romfile"] = ""
	}
	switch model := n.GetModel(); {
	case model == "" || model == spec.NetVirtio:
		o = b.bus.virtio("net", b.multiqueue(n, o))
	case queuesOf(n) > 1:
		b.faults.Add(field+".pod.queues", "%d: an %.20s has one: want virtio", queuesOf(n), model)
		return
	case b.onMicroVM():
		b.faults.Add(field+".model", "the machine type microvm has no PCI for an %.20s: want virtio", model)
		return
	default:
		o["driver"] = model
	}
	if n.GetBootOrder() != 0 && b.onMicroVM() {
		b.faults.Add(field+".bootOrder", "the machine type microvm boots a kernel, and nothing else: leave it out")
	}
	b.device(field+".model", b.placeDevice(field, o, slotsNetwork(), laterNetworks(), slot))
}

// networkID and diskID are what QEMU calls a device's backend, and deviceID what it
// calls what the guest sees of it. They follow from the slot, which the device keeps.
func networkID(slot int) string      { return fmt.Sprintf("net%d", slot) }
func diskID(slot int) string         { return fmt.Sprintf("disk%d", slot) }
func deviceID(backend string) string { return backend + "-device" }

// queuesOf are those of an interface: QEMU counts pairs, one to receive and one to send.
func queuesOf(n *specv1.NetworkInterface) int { return int(max(n.GetPod().GetQueues(), 1)) }

// multiqueue gives a virtio device its queues, each with an interrupt to receive and one to
// send, beside those for its configuration and its control queue.
func (b *builder) multiqueue(n *specv1.NetworkInterface, o options) options {
	if queues := queuesOf(n); queues > 1 {
		o["mq"] = true
		if b.bus.root != "" {
			o["vectors"] = 2*queues + 2
		}
	}
	return o
}

// tap is opened by anyone who may: QEMU gets the descriptors, one a queue.
func (b *builder) tap(field, id string, index int) {
	if index >= len(b.req.Taps) || b.req.Taps[index] < 0 {
		b.faults.Add(field, "no tap device was opened for it")
		return
	}
	n := b.spec.GetNetworks()[index]
	if b.plug != nil {
		file := plan.File{Kind: plan.FileReceived, Field: field, Index: b.req.Taps[index], Keep: keptTap(id, 0)}
		b.netdev(options{"type": "tap", "id": id, "fd": b.plug.descriptor(id, b.index(file))})
		return
	}
	o := options{"type": "tap", "id": id}
	b.received(o, "fd", field, b.req.Taps[index], queuesOf(n), func(queue int) string { return keptTap(id, queue) })
	virtio := n.GetModel() == "" || n.GetModel() == spec.NetVirtio
	if virtio && index < len(b.req.VhostNet) && b.req.VhostNet[index] >= 0 {
		o["vhost"] = true
		// One is its process's alone: a QEMU that takes this one's place gets another.
		b.received(o, "vhostfd", field, b.req.VhostNet[index], queuesOf(n), func(int) string { return "" })
	}
	b.netdev(o)
}

// keptTap is the name by which the shim keeps a tap's queue: it goes with the device.
func keptTap(backend string, queue int) string {
	return fmt.Sprintf("%s/tap%d", deviceID(backend), queue)
}

// received hands descriptors that come with the plan to an option, which has another name for
// several. keep is the name by which the shim keeps one.
func (b *builder) received(o options, name, field string, first, count int, keep func(queue int) string) {
	var numbers []string
	for i := range count {
		numbers = append(numbers, b.file(plan.File{Kind: plan.FileReceived, Field: field, Index: first + i, Keep: keep(i)}))
	}
	if count > 1 {
		name += "s"
	}
	o[name] = strings.Join(numbers, ":")
}

// podNetwork is a tap in the VM's pod.
func (b *builder) podNetwork(field, id string, index int) {
	if index >= len(b.req.Taps) || b.req.Taps[index] < 0 {
		b.faults.Add(field, vmm.NoPod)
		return
	}
	b.tap(field, id, index)
}

// userNetwork is QEMU's own NAT.
func (b *builder) userNetwork(field, id string, user *specv1.UserNetwork) {
	o := options{"type": "user", "id": id}
	var forwards []options
	for i, p := range user.GetPorts() {
		address, err := netip.ParseAddr(p.GetHostAddress())
		if err != nil || !address.Is4() {
			b.faults.Add(fmt.Sprintf("%s.user.ports[%d].hostAddress", field, i), "%q is not an IPv4 address: QEMU forwards no other", p.GetHostAddress())
			continue
		}
		forwards = append(forwards, options{"str": fmt.Sprintf("%s:%s:%d-:%d", p.GetProtocol(), address, p.GetHostPort(), p.GetGuestPort())})
	}
	if forwards != nil {
		o["hostfwd"] = forwards
	}
	if user.GetCidr() != "" {
		b.addresses(field+".user.cidr", user.GetCidr(), o)
	}
	if name := user.GetHostname(); name != "" && len(name) <= maxSlirpName {
		o["hostname"] = name
	}
	if file := user.GetBootFile(); file != "" {
		o["bootfile"] = file
	}
	if server := user.GetTftpServer(); server != "" {
		o["tftp-server-name"] = server
	}
	var domains []options
	for _, d := range user.GetSearchDomains() {
		domains = append(domains, options{"str": d})
	}
	if domains != nil {
		o["dnssearch"] = domains
	}
	b.netdev(o)
}

// maxSlirpName is what libslirp keeps of a host's name (client_hostname in its slirp.h).
// Half a name is worse than none.
const maxSlirpName = 32

// addresses are those of gateway, guest and name server: the first, second and third of
// the network.
func (b *builder) addresses(field, cidr string, o options) {
	network, err := netip.ParsePrefix(cidr)
	if err != nil {
		b.faults.Add(field, "%v", err)
		return
	}
	gateway := network.Addr().Next()
	guest := gateway.Next()
	o["net"], o["host"], o["dhcpstart"], o["dns"] = network.String(), gateway.String(), guest.String(), guest.Next().String()
}
