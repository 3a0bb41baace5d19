package e2e

import (
	"encoding/binary"
	"fmt"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"hash/fnv"
	"net"
	"os"
	"slices"
)

// mac is an address that no other VM has, of this node or of another test's.
func (n *node) mac(vm string) net.HardwareAddr {
	sum := fnv.New64a()
	fmt.Fprint(sum, n.dir, vm)
	mac := binary.BigEndian.AppendUint64(nil, sum.Sum64())[:6]
	mac[0] = 0x52
	return mac
}

// tap is an interface with a tap of the node's; none where there are no taps.
func (n *node) tap(vm string) []*specv1.NetworkInterface {
	if f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0); err != nil {
		return nil
	} else {
		f.Close()
	}
	return []*specv1.NetworkInterface{{
		Name: "lan", Mac: n.mac(vm).String(),
		Backend: &specv1.NetworkInterface_Tap{Tap: &specv1.TapNetwork{}},
	}}
}

// taps are those that a VM has: the host's side has its address but for the first byte.
func (w *walked) taps() (names []string) {
	w.t.Helper()
	all, err := net.Interfaces()
	w.must(err)
	want := w.mac(w.v.name)
	for _, i := range all {
		if len(i.HardwareAddr) == len(want) && slices.Equal(i.HardwareAddr[1:], want[1:]) {
			names = append(names, i.Name)
		}
	}
	return names
}
