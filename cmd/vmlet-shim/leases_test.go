package main

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/lease"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/test/podlink"
)

// TestLeasesResidentMemory: a shim that tells its guest of its network stays small, also
// when the guest floods it.
func TestLeasesResidentMemory(t *testing.T) {
	t.Parallel()
	q := anyQEMU(t)
	s := newScene(t)
	link := podlink.New(t)
	link.Up()
	sockets := link.Sockets()
	defer sockets.Close()
	s.startShim()
	launched, err := s.client.Launch(s.ctx, shim.Launch{Plan: s.plan(q), Leases: []shim.Lease{{Device: "net0", Config: lease.Config{
		MAC: podlink.GuestMAC, MTU: 1500,
		V4: &lease.V4{Address: netip.MustParsePrefix("10.0.2.2/24"), Server: netip.MustParseAddr("10.0.2.1"), Gateway: netip.MustParseAddr("10.0.2.1")},
		V6: &lease.V6{Address: netip.MustParsePrefix("fd10:0:2::2/120"), Router: netip.MustParseAddr("fe80::1"), DefaultRoute: true},
	}}}}, sockets.Files(), nil)
	s.check(err)
	s.vmmPID = launched.VMMPID
	s.console(1 << 20).expect("filled 8")
	s.checkResident("before it was asked")
	script, notes := link.Script()
	link.Run(podlink.Busybox(t), "udhcpc", "-f", "-q", "-i", "eth0", "-s", script)
	link.Expect(notes, []string{"ip=10.0.2.2"})
	s.checkResident("after a lease")
	link.Run("/usr/sbin/ip", "address", "add", "10.0.2.2/24", "dev", "eth0")
	link.Guest(func() error {
		return errors.Join(flood("udp4", "255.255.255.255:67"), flood("udp6", "[ff02::1:2%eth0]:547"))
	})
	s.checkResident("after a flood")
}

// flood sends what begins as a request does and goes on as none.
func flood(network, to string) error {
	target, err := net.ResolveUDPAddr(network, to)
	if err != nil {
		return err
	}
	c, err := net.ListenUDP(network, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	err = raw.Control(func(fd uintptr) { _ = unix.SetsockoptString(int(fd), unix.SOL_SOCKET, unix.SO_BINDTODEVICE, "eth0") })
	b := make([]byte, 1400)
	b[0], b[1], b[2] = 1, 1, 6
	for range 20000 {
		if _, err := c.WriteTo(b, target); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return err
		}
	}
	return err
}
