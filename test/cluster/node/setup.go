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
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("lo: %w", err)
	}
	up, err := netlink.LinkByName(s.Interface)
	if err != nil {
		return fmt.Errorf("%s: %w", s.Interface, err)
	}
	for _, a := range []struct {
		link    netlink.Link
		address string
	}{{lo, s.Service + "/32"}, {up, s.Address}} {
		if err := netlink.LinkSetUp(a.link); err != nil {
			return fmt.Errorf("%s: %w", a.link.Attrs().Name, err)
		}
		address, err := netlink.ParseAddr(a.address)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(a.link, address); err != nil {
			return fmt.Errorf("giving %s to %s: %w", a.address, a.link.Attrs().Name, err)
		}
	}
	gateway := netlink.Route{LinkIndex: up.Attrs().Index, Gw: net.ParseIP(s.Gateway)}
	if err := netlink.RouteAdd(&gateway); err != nil {
		return fmt.Errorf("the way through %s: %w", s.Gateway, err)
	}
	// This one is the network namespace's own.
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
}
