// Package socket opens the sockets on which a guest's questions come in. Anyone who opens
// them needs CAP_NET_RAW and CAP_NET_BIND_SERVICE in the network namespace; anyone who serves
// on them needs nothing.
package socket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/lease"
)

const (
	// maxPacket is how much of a packet is taken in.
	maxPacket = 1500
	// queue is how many bytes of packets wait to be read. A guest that asks faster loses
	// the rest.
	queue = 32 << 10
)

// Open opens the sockets for a guest's interface in the network namespace of the calling
// thread. The interface is the one that has the gateway's address: a bridge, not the tap
// that is a port of it, as frames of a port are the bridge's. The bridge must not snoop
// multicast, or it may keep the guest's questions from here.
func Open(name string, guest lease.MAC) (s lease.Sockets, err error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return s, fmt.Errorf("interface %s: %w", name, err)
	}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if s.IPv4, err = packets(i, unix.ETH_P_IP, admitV4(guest)); err != nil {
		return s, fmt.Errorf("packet socket for IPv4 on %s: %w", name, err)
	}
	if s.IPv6, err = packets(i, unix.ETH_P_IPV6, admitV6(guest)); err != nil {
		return s, fmt.Errorf("packet socket for IPv6 on %s: %w", name, err)
	}
	if s.Port, err = port(i); err != nil {
		return s, fmt.Errorf("UDP port %d on %s: %w", portDHCPv4, name, err)
	}
	return s, nil
}

// packets opens a packet socket without link-layer headers. It takes in nothing before its
// filter is there, nor ever without it.
func packets(i *net.Interface, protocol uint16, admit []bpf.Instruction) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	err = errors.Join(filter(fd, admit), unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, queue))
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: bigEndian(protocol), Ifindex: i.Index})
	}
	return file(fd, err, "lease")
}

// port opens the UDP socket.
func port(i *net.Interface) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		filter(fd, []bpf.Instruction{bpf.RetConstant{}}),
		unix.BindToDevice(fd, i.Name),
	)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Port: portDHCPv4})
	}
	return file(fd, err, "port")
}

func file(fd int, err error, name string) (*os.File, error) {
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), name), nil
}

// filter sets what a socket takes in, for good.
func filter(fd int, program []bpf.Instruction) error {
	raw, err := bpf.Assemble(program)
	if err != nil {
		return err
	}
	code := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		code[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}); err != nil {
		return fmt.Errorf("filter: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_LOCK_FILTER, 1); err != nil {
		return fmt.Errorf("lock the filter: %w", err)
	}
	return nil
}

// bigEndian is htons(3).
func bigEndian(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}
