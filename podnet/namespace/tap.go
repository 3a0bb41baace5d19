package namespace

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/podnet"
)

// tunDevice is what taps are opened through (Documentation/networking/tuntap). Opened, it is
// of the network namespace of the thread.
const tunDevice = "/dev/net/tun"

// openTap makes the guest's tap in its bridge. The kernel removes it with its last
// descriptor, one a queue.
func openTap(n podnet.Network, mtu int) (files []*os.File, err error) {
	queues := max(n.Queues, 1)
	for range queues {
		f, err := openQueue(n.TapName(), queues > 1)
		if err != nil {
			return files, err
		}
		files = append(files, f)
	}
	link, err := linkNamed(n.TapName())
	if err != nil {
		return files, err
	}
	bridge, err := linkNamed(n.BridgeName())
	if err != nil {
		return files, err
	}
	if err := netlink.LinkSetMTU(link, mtu); err != nil {
		return files, fmt.Errorf("setting the MTU of tap %s to %d: %w", n.TapName(), mtu, err)
	}
	no := sysctls{{"ipv6/conf/" + n.TapName() + "/disable_ipv6", "1"}}
	if err := errors.Join(no.apply(), netlink.LinkSetMaster(link, bridge), netlink.LinkSetUp(link)); err != nil {
		return files, fmt.Errorf("putting tap %s into bridge %s: %w", n.TapName(), n.BridgeName(), err)
	}
	return files, nil
}

// openQueue has no header of packet information, and that of virtio, which VMMs take.
func openQueue(name string, several bool) (*os.File, error) {
	fd, err := unix.Open(tunDevice, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: load the module tun", tunDevice, err)
	}
	flags := uint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if several {
		flags |= unix.IFF_MULTI_QUEUE
	}
	req, err := unix.NewIfreq(name)
	if err == nil {
		req.SetUint16(flags)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err != nil {
		unix.Close(fd)
		busy := errors.Is(err, unix.EBUSY) // its last holder may be ending
		err = fmt.Errorf("tap %s: TUNSETIFF: %w", name, err)
		if busy {
			return nil, podnet.PassingError{Err: err}
		}
		return nil, err
	}
	return os.NewFile(uintptr(fd), tunDevice), nil
}
