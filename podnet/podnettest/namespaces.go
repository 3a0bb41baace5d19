// Package podnettest has network namespaces for tests: a node, a pod that a veth pair
// connects to it, and a guest in the place of a VM's. What goes between them is real.
package podnettest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Namespace is a network namespace.
type Namespace struct {
	t    testing.TB
	File *os.File
}

// New makes one, with its loopback interface up. It needs root.
func New(t testing.TB) *Namespace {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("network namespaces are root's to make")
	}
	n := &Namespace{t: t}
	err := n.thread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		f, err := os.Open("/proc/thread-self/ns/net")
		n.File = f
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.File.Close() })
	n.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		return errors.Join(err, netlink.LinkSetUp(lo))
	})
	return n
}

// thread runs f on a thread that ends afterwards.
func (n *Namespace) thread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked
		done <- f()
	}()
	return <-done
}

// In runs f in the namespace.
func (n *Namespace) In(f func() error) error {
	return n.thread(func() error {
		if err := unix.Setns(int(n.File.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("setns: %w", err)
		}
		return f()
	})
}

// Do is In, and fails the test.
func (n *Namespace) Do(f func() error) {
	n.t.Helper()
	if err := n.In(f); err != nil {
		n.t.Fatal(err)
	}
}

// End is one end of a veth pair.
type End struct {
	In        *Namespace
	Name      string
	MAC       string
	Addresses []string // with prefixes
	Gateways  []string // of default routes
}

// Connect makes a veth pair.
func Connect(mtu int, a, b End) {
	a.In.t.Helper()
	a.In.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = a.Name, mtu
		veth := &netlink.Veth{LinkAttrs: attrs, PeerName: b.Name, PeerMTU: uint32(mtu), PeerNamespace: netlink.NsFd(b.In.File.Fd())}
		return netlink.LinkAdd(veth)
	})
	for _, e := range []End{a, b} {
		e.In.Do(e.configure)
	}
}

func (e End) configure() error {
	link, err := netlink.LinkByName(e.Name)
	if err != nil {
		return err
	}
	if e.MAC != "" {
		mac, err := net.ParseMAC(e.MAC)
		if err := errors.Join(err, netlink.LinkSetHardwareAddr(link, mac)); err != nil {
			return err
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return err
	}
	for _, text := range e.Addresses {
		addr, err := netlink.ParseAddr(text)
		if err != nil {
			return err
		}
		if addr.IP.To4() == nil {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(link, addr); err != nil {
			return err
		}
	}
	for _, text := range e.Gateways {
		via := net.ParseIP(text)
		bits := 32
		if via.To4() == nil {
			bits = 128
		}
		everything := &net.IPNet{IP: make(net.IP, bits/8), Mask: net.CIDRMask(0, bits)}
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: everything, Gw: via}); err != nil {
			return err
		}
	}
	return nil
}

// Serve answers each TCP connection to a port, and each UDP packet, with where it came from.
func (n *Namespace) Serve(port uint16) {
	n.t.Helper()
	n.Do(func() error {
		for _, network := range []string{"tcp4", "tcp6"} {
			l, err := net.Listen(network, fmt.Sprintf(":%d", port))
			if err != nil {
				return err
			}
			n.t.Cleanup(func() { l.Close() })
			go answer(l)
		}
		p, err := net.ListenPacket("udp", fmt.Sprintf(":%d", port))
		if err != nil {
			return err
		}
		n.t.Cleanup(func() { p.Close() })
		go func() {
			buffer := make([]byte, 16)
			for {
				_, from, err := p.ReadFrom(buffer)
				if err != nil {
					return
				}
				_, _ = p.WriteTo([]byte(host(from)+"\n"), from) // who asked has gone
			}
		}()
		return nil
	})
}

func answer(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		fmt.Fprintln(c, host(c.RemoteAddr()))
		c.Close()
	}
}

func host(a net.Addr) string {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return err.Error()
	}
	return at.Addr().Unmap().String()
}

// patience of connections that nobody answers; those that are answered are so at once.
const patience = 20 * time.Second

// Ask connects from the namespace, and returns as whom it was seen.
func (n *Namespace) Ask(network, address string) (seen string, err error) {
	return n.AskFor(patience, network, address)
}

// AskFor gives up after d, for what is not to be answered.
func (n *Namespace) AskFor(d time.Duration, network, address string) (seen string, err error) {
	err = n.In(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), d)
		defer cancel()
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return err
		}
		defer c.Close()
		deadline, _ := ctx.Deadline()
		if err := c.SetDeadline(deadline); err != nil {
			return err
		}
		if network[:3] == "udp" {
			if _, err := c.Write([]byte("?")); err != nil {
				return err
			}
		}
		line, err := bufio.NewReader(c).ReadString('\n')
		seen = strings.TrimSpace(line)
		return err
	})
	return seen, err
}

// AskFrom connects by TCP with an address of the namespace's.
func (n *Namespace) AskFrom(d time.Duration, from, address string) (seen string, err error) {
	err = n.In(func() error {
		dialer := net.Dialer{Timeout: d, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		c, err := dialer.Dial("tcp", address)
		if err != nil {
			return err
		}
		return c.Close()
	})
	return seen, err
}
