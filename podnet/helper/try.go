package helper

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/podnet"
	"github.com/vmlet/vmlet/podnet/namespace"
)

// try makes a guest's network in a namespace of its own, so that what the kernel lacks or a
// policy forbids is known before any pod is there. The namespace goes with its thread.
func try() error {
	return onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("making a network namespace: %w", err)
		}
		const name = "eth0"
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		nic := &netlink.Bridge{LinkAttrs: attrs} // anything that has addresses
		if err := netlink.LinkAdd(nic); err != nil {
			return fmt.Errorf("making an interface: %w", err)
		}
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(192, 0, 2, 2), Mask: net.CIDRMask(24, 32)}} // TEST-NET-1
		if err := netlink.AddrAdd(nic, addr); err != nil {
			return fmt.Errorf("giving an interface an address: %w", err)
		}
		_, files, err := namespace.Make(podnet.Plan{Networks: []podnet.Network{{
			Binding: podnet.Masquerade, Interface: name, MAC: "52:54:00:00:00:01",
			CIDR: netip.MustParsePrefix("10.0.2.0/24"), IPv6CIDR: netip.MustParsePrefix("fd10:0:2::/120"),
		}}}, sockets)
		closeAll(files)
		if err != nil {
			return fmt.Errorf("trying it: %w", err)
		}
		return nil
	})
}
