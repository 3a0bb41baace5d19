package server_test

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/lease"
	"github.com/vmlet/vmlet/lease/internal/packet"
	"github.com/vmlet/vmlet/lease/socket"
	"github.com/vmlet/vmlet/test/podlink"
)

// stranger is the MAC of another on the guest's bridge.
var stranger = lease.MAC{0x02, 0, 0, 0, 0, 0x66}

// discover is the frame of a DHCP client with that MAC in its message.
func discover(from, client lease.MAC) []byte {
	b := make([]byte, 240, 300)
	b[0], b[1], b[2] = 1, 1, 6
	copy(b[28:], client[:])
	binary.BigEndian.PutUint32(b[236:], 0x63825363)
	b = append(b, 53, 1, 1, 255)
	return frame(from, packet.Datagram(netip.MustParseAddrPort("0.0.0.0:68"), netip.MustParseAddrPort("255.255.255.255:67"), b))
}

func solicitation(from lease.MAC) []byte {
	return frame(from, packet.Control(netip.MustParseAddr("fe80::66"), netip.MustParseAddr("ff02::2"), []byte{133, 0, 0, 0, 0, 0, 0, 0}))
}

func solicit6(from lease.MAC, body ...byte) []byte {
	return frame(from, packet.Datagram(netip.MustParseAddrPort("[fe80::66]:546"), netip.MustParseAddrPort("[ff02::1:2]:547"), append([]byte{1, 'a', 'b', 'c'}, body...)))
}

func frame(from lease.MAC, ip []byte) []byte {
	b := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, from[:]...)
	if ip[0]>>4 == 6 {
		b = append(b, 0x86, 0xdd)
	} else {
		b = append(b, 8, 0)
	}
	return append(b, ip...)
}

// raw is a socket on which the guest sends and sees whole frames.
type raw struct {
	t  *testing.T
	fd int
}

func (l *link) raw() *raw {
	l.t.Helper()
	r := &raw{t: l.t}
	l.Guest(func() (err error) {
		if r.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0x300); err != nil {
			return err
		}
		index, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		return unix.Bind(r.fd, &unix.SockaddrLinklayer{Protocol: 0x300, Ifindex: index.Index})
	})
	l.t.Cleanup(func() { unix.Close(r.fd) })
	return r
}

func (r *raw) send(b []byte) {
	r.t.Helper()
	if _, err := unix.Write(r.fd, b); err != nil {
		r.t.Fatal(err)
	}
}

// answers returns which frames have come for DHCP's clients, or as advertisements, without
// those that the guest has sent.
func (r *raw) answers() (all []answer) {
	r.t.Helper()
	b := make([]byte, 2000)
	for {
		n, from, err := unix.Recvfrom(r.fd, b, unix.MSG_DONTWAIT)
		if err == unix.EAGAIN {
			return all
		}
		if err != nil {
			r.t.Fatal(err)
		}
		p, ok := packet.Parse(b[14:n])
		if from.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING || !ok {
			continue
		}
		a := answer{to: lease.MAC(b[:6])}
		switch {
		case p.Protocol == packet.UDP && p.FromPort == 67:
			a.kind = "DHCP"
		case p.Protocol == packet.UDP && p.FromPort == 547:
			a.kind = "DHCPv6"
		case p.Protocol == packet.ICMPv6 && p.Payload[0] == 134:
			a.kind = "advertisement"
		default:
			continue
		}
		all = append(all, a)
	}
}

type answer struct {
	kind string
	to   lease.MAC
}

// TestOthers: nobody but the guest is answered, and nobody but the guest hears the answers.
func TestOthers(t *testing.T) {
	l := newLink(t)
	l.Up()
	l.serve(masquerade())
	r := l.raw()
	r.send(discover(stranger, stranger))
	r.send(discover(stranger, podlink.GuestMAC))
	r.send(solicitation(stranger))
	r.send(solicit6(stranger, 0, 1, 0, 1, 9))
	r.send(discover(podlink.GuestMAC, stranger))
	// Answers to these come after what there would be for the others.
	r.send(discover(podlink.GuestMAC, podlink.GuestMAC))
	r.send(solicit6(podlink.GuestMAC, 0, 1, 0, 1, 9))
	seen := make(map[string]int)
	l.Await("answers", func() bool {
		for _, a := range r.answers() {
			seen[a.kind]++
			if a.to != podlink.GuestMAC {
				t.Errorf("%s for %s", a.kind, a.to)
			}
		}
		return seen["DHCP"] > 0 && seen["DHCPv6"] > 0
	})
	if seen["DHCP"] != 1 || seen["DHCPv6"] != 1 || seen["advertisement"] > 1 {
		t.Errorf("answers: %v, one each is due", seen)
	}
}

// TestFlood: a guest that asks without end gets few answers and causes few lines of log, and
// is served when it has had enough.
func TestFlood(t *testing.T) {
	const frames = 20000
	l := newLink(t)
	l.Up()
	stop := l.serve(masquerade())
	r := l.raw()
	start := time.Now()
	got := 0
	for i := range frames {
		switch i % 4 {
		case 0:
			r.send(discover(podlink.GuestMAC, podlink.GuestMAC))
		case 1:
			r.send(solicitation(podlink.GuestMAC))
		case 2:
			r.send(solicit6(podlink.GuestMAC, 0, 1, 0, 9)) // cut off
		case 3:
			r.send(frame(podlink.GuestMAC, packet.Datagram(netip.MustParseAddrPort("0.0.0.0:68"), netip.MustParseAddrPort("255.255.255.255:67"), []byte("nonsense"))))
		}
		got += len(r.answers())
	}
	// Of each family a burst, and then so many a second, of which each may be answered.
	if most := 2 * (30 + 10*(1+int(time.Since(start)/time.Second))); got > most {
		t.Errorf("%d answers to %d questions, at most %d are due", got, frames, most)
	}
	if lines := strings.Count(l.log.String(), "malformed"); lines == 0 || lines > 10+int(time.Since(start)/time.Second) {
		t.Errorf("%d lines about malformed messages", lines)
	}
	script, notes := l.Script()
	l.Run(podlink.Busybox(t), "udhcpc", "-f", "-q", "-t", "100", "-i", "eth0", "-s", script)
	l.Expect(notes, []string{"ip=10.0.2.2"})
	ended := make(chan struct{})
	go func() { stop(); close(ended) }()
	select {
	case <-ended:
	case <-l.Context.Done():
		t.Error("the server does not end")
	}
}

// TestSockets: filters are there for good, and the kernel says to nobody that nobody
// listens on DHCP's port.
func TestSockets(t *testing.T) {
	l := newLink(t)
	l.Up()
	l.Pod(func() error {
		s, err := socket.Open("br0", podlink.GuestMAC)
		if err != nil {
			return err
		}
		defer s.Close()
		for _, f := range s.Files() {
			if err := unix.SetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0); err != unix.EPERM {
				t.Errorf("%s: detach its filter: %v", f.Name(), err)
			}
		}
		return nil
	})
	l.Pod(func() error {
		if _, err := socket.Open("br9", podlink.GuestMAC); err == nil || !strings.Contains(err.Error(), "br9") {
			t.Errorf("an interface that isn't there: %v", err)
		}
		return nil
	})
}

// TestRenewal: a client that renews its lease from its own address is answered there.
func TestRenewal(t *testing.T) {
	l := newLink(t)
	l.AddAddress("10.0.2.1/24")
	l.Up()
	l.serve(masquerade())
	l.Run("/usr/sbin/ip", "address", "add", "10.0.2.2/24", "dev", "eth0")
	l.Guest(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), "client")
		defer f.Close()
		if err := unix.Bind(fd, &unix.SockaddrInet4{Port: 68}); err != nil {
			return err
		}
		// Connected, it would see that the kernel says that nobody listens.
		if err := unix.Connect(fd, &unix.SockaddrInet4{Port: 67, Addr: [4]byte{10, 0, 2, 1}}); err != nil {
			return err
		}
		b := make([]byte, 240)
		b[0], b[1], b[2] = 1, 1, 6
		copy(b[12:], []byte{10, 0, 2, 2})
		copy(b[28:], podlink.GuestMAC[:])
		binary.BigEndian.PutUint32(b[236:], 0x63825363)
		b = append(b, 53, 1, 3, 255)
		if _, err := unix.Write(fd, b); err != nil {
			return err
		}
		defer context.AfterFunc(l.Context, func() { unix.Shutdown(fd, unix.SHUT_RDWR) })()
		n, err := unix.Read(fd, b[:cap(b)])
		if err != nil || n < 240 {
			t.Errorf("answer of %d bytes: %v", n, err)
		}
		return nil
	})
}
