package namespace

import (
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/podnet"
)

// addresses are those of an interface, but for IPv6 addresses that are link-local or
// temporary: these go when it is taken down. netlink.AddrList would keep all of the namespace,
// and a pod can make as many as it likes.
func addresses(link netlink.Link) (all []netlink.Addr, err error) {
	err = again(func() error {
		all = nil
		req := nl.NewNetlinkRequest(unix.RTM_GETADDR, unix.NLM_F_DUMP)
		req.AddData(nl.NewIfAddrmsg(netlink.FAMILY_ALL))
		err := req.ExecuteIter(unix.NETLINK_ROUTE, unix.RTM_NEWADDR, func(m []byte) bool {
			if a, ok := addressOf(m, link.Attrs().Index); ok {
				all = append(all, a)
			}
			return len(all) <= podnet.MaxAddresses
		})
		if len(all) > podnet.MaxAddresses { // also of a list that may lack some
			return fmt.Errorf("more than %d", podnet.MaxAddresses)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("its addresses: %w", err)
	}
	return all, nil
}

// addressOf reads a message of the kernel (rtnetlink(7), RTM_NEWADDR); not ok: it is of no
// interest.
func addressOf(m []byte, index int) (a netlink.Addr, ok bool) {
	if len(m) < unix.SizeofIfAddrmsg {
		return a, false
	}
	header := nl.DeserializeIfAddrmsg(m)
	if int(header.Index) != index {
		return a, false
	}
	attrs, err := nl.ParseRouteAttr(m[unix.SizeofIfAddrmsg:])
	if err != nil {
		return a, false
	}
	// The prefix is that of IFA_ADDRESS, which is the peer's where there is one.
	var peer, local *net.IPNet
	for _, attr := range attrs {
		whole := 8 * len(attr.Value)
		switch attr.Attr.Type {
		case unix.IFA_ADDRESS:
			peer = &net.IPNet{IP: attr.Value, Mask: net.CIDRMask(int(header.Prefixlen), whole)}
		case unix.IFA_LOCAL:
			local = &net.IPNet{IP: attr.Value, Mask: net.CIDRMask(whole, whole)}
		}
	}
	switch {
	case local == nil || peer != nil && local.IP.Equal(peer.IP):
		a.IPNet = peer
	default:
		a.IPNet, a.Peer = local, peer
	}
	passing := header.Family == unix.AF_INET6 && a.IPNet != nil &&
		(a.IP.IsLinkLocalUnicast() || header.Flags&unix.IFA_F_TEMPORARY != 0)
	return a, a.IPNet != nil && !passing
}
