package server

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/interrupted"
	"github.com/vmlet/vmlet/lease"
)

const (
	ethertypeIPv4 = unix.ETH_P_IP
	ethertypeIPv6 = unix.ETH_P_IPV6

	// maxPacket is how much of a packet is read: no question is longer.
	maxPacket = 1500
)

// socket is a packet socket of one family. Its methods may be called on a nil one.
type socket struct {
	file *os.File
	to   unix.SockaddrLinklayer // the guest
}

// newSocket duplicates a descriptor. Which interface it is bound to, it says itself.
func newSocket(f *os.File, guest lease.MAC, ethertype uint16) (*socket, error) {
	fd, err := duplicate(f)
	if err != nil {
		return nil, err
	}
	name, err := unix.Getsockname(fd)
	at, is := name.(*unix.SockaddrLinklayer)
	if err == nil && !is {
		err = fmt.Errorf("%T is no packet socket's name", name)
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	s := &socket{
		file: os.NewFile(uintptr(fd), f.Name()),
		to:   unix.SockaddrLinklayer{Ifindex: at.Ifindex, Protocol: bigEndian(ethertype), Halen: uint8(len(guest))},
	}
	copy(s.to.Addr[:], guest[:])
	return s, nil
}

// bigEndian is htons(3).
func bigEndian(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}

// duplicate returns a descriptor that doesn't block, so that its reader waits in the
// runtime's poller and not in a thread of its own.
func duplicate(f *os.File) (int, error) {
	if f == nil {
		return -1, errors.New("missing")
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

func (s *socket) close() {
	if s != nil {
		s.file.Close()
	}
}

// read waits for a packet. What is longer than there is room for is cut.
func (s *socket) read(b []byte) (n int, err error) {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failure error
	err = raw.Read(func(fd uintptr) bool {
		n, failure = interrupted.RetryInt(func() (int, error) {
			n, _, err := unix.Recvfrom(int(fd), b, 0)
			return n, err
		})
		return !errors.Is(failure, unix.EAGAIN)
	})
	return n, errors.Join(err, failure)
}

// write sends a packet to the guest. While the interface's queue is full it waits.
func (s *socket) write(b []byte) error {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return err
	}
	var failure error
	err = raw.Write(func(fd uintptr) bool {
		failure = interrupted.Retry(func() error { return unix.Sendto(int(fd), b, 0, &s.to) })
		return !errors.Is(failure, unix.EAGAIN)
	})
	return errors.Join(err, failure)
}
