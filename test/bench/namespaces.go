package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The ends of the wire between a pod and who it talks to.
const (
	podLink     = "eth0"
	podAddress  = "198.51.100.2"
	peerAddress = "198.51.100.1"
	wireBits    = 24
)

// podNamespace is a network namespace.
type podNamespace struct{ file *os.File }

// newNamespace makes one, with nothing in it but its loopback interface.
func newNamespace() (podNamespace, error) {
	var n podNamespace
	err := onThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("making a network namespace: %w", err)
		}
		n.file, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	return n, err
}

// onThread runs f on a thread of its own, which ends with it.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked
		done <- f()
	}()
	return <-done
}

// in runs f in the namespace; processes that it starts are there, too.
func (n podNamespace) in(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering a network namespace: %w", err)
		}
		return f()
	})
}

// wired are a pod and its peer, with a wire between them as network plug-ins lay it.
func wired() (pod, peer podNamespace, err error) {
	if pod, err = newNamespace(); err != nil {
		return pod, peer, err
	}
	if peer, err = newNamespace(); err != nil {
		return pod, peer, errors.Join(err, pod.file.Close())
	}
	err = peer.in(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = podLink
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: podLink, PeerNamespace: netlink.NsFd(pod.file.Fd())})
	})
	for _, end := range []struct {
		in      podNamespace
		address string
	}{{pod, podAddress}, {peer, peerAddress}} {
		if err == nil {
			err = end.in.in(func() error { return addressed(podLink, netip.MustParseAddr(end.address), wireBits) })
		}
	}
	if err != nil {
		err = errors.Join(err, pod.file.Close(), peer.file.Close())
	}
	return pod, peer, err
}

// addressed has an interface up, with an address.
func addressed(name string, address netip.Addr, bits int) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	network := &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(bits, address.BitLen())}
	return errors.Join(netlink.AddrReplace(link, &netlink.Addr{IPNet: network}), netlink.LinkSetUp(link))
}

// openTap makes a tap in the namespace of the thread. The kernel removes it with its descriptor.
func openTap(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("tap %s: %w", name, err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), name), nil
}
