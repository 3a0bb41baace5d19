package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/test/cluster/internal/wire"
)

func setUp(s *wire.Setup) error {
	if err := unix.Sethostname([]byte(s.Hostname)); err != nil {
		return fmt.Errorf("setting the host name: %w", err)
	}
	if err := mounts(s); err != nil {
		return err
	}
	return network(s)
}

// mounts makes them in a tree that gives nothing back to the machine's, but is
// shared in itself: pods' volumes have to reach pods that run.
func mounts(s *wire.Setup) error {
	for _, propagation := range []uintptr{unix.MS_PRIVATE, unix.MS_SHARED} {
		if err := unix.Mount("", "/", "", unix.MS_REC|propagation, ""); err != nil {
			return fmt.Errorf("changing how mounts spread: %w", err)
		}
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	for _, b := range s.Binds {
		if err := bind(b.From, b.To); err != nil {
			return err
		}
	}
	for _, file := range s.Copies {
		content, err := os.ReadFile(file)
		if os.IsNotExist(err) {
			continue // not in this kernel
		}
		if err != nil {
			return err
		}
		own := filepath.Join(s.CopiesIn, strings.ReplaceAll(strings.Trim(file, "/"), "/", "."))
		if err := os.WriteFile(own, content, 0o644); err != nil {
			return err
		}
		if err := bind(own, file); err != nil {
			return err
		}
	}
	return nil
}

func bind(from, to string) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("binding %s to %s: %w", from, to, err)
	}
	return nil
}

func network(s *wire.Setup) error {
	up, err := addressed(s.Interface, s.Addresses...)
	if err != nil {
		return err
	}
	var service []string
	if s.Service != "" {
		service = []string{s.Service + "/32"}
	}
	if _, err := addressed("lo", service...); err != nil {
		return err
	}
	routes := []netlink.Route{{LinkIndex: up.Attrs().Index, Gw: net.ParseIP(s.Gateway)}}
	for _, r := range s.Routes {
		_, to, err := net.ParseCIDR(r.To)
		if err != nil {
			return err
		}
		routes = append(routes, netlink.Route{LinkIndex: up.Attrs().Index, Dst: to, Gw: net.ParseIP(r.Via)})
	}
	for _, r := range routes {
		if err := netlink.RouteAdd(&r); err != nil {
			return fmt.Errorf("the way through %s: %w", r.Gw, err)
		}
	}
	return forward(len(s.Addresses) > 1)
}

// addressed has an interface up, with addresses.
func addressed(name string, addresses ...string) (netlink.Link, error) {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for _, a := range addresses {
		address, err := netlink.ParseAddr(a)
		if err != nil {
			return nil, err
		}
		address.Flags |= unix.IFA_F_NODAD // nobody else has it
		if err := netlink.AddrAdd(link, address); err != nil {
			return nil, fmt.Errorf("giving %s to %s: %w", a, name, err)
		}
	}
	return link, nil
}

// forward has the node pass on what is for its pods. These are the network namespace's own.
func forward(v6 bool) error {
	err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
	if err == nil && v6 {
		err = os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0)
	}
	return err
}
