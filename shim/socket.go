package shim

import (
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// socket is a connection whose descriptor the shim has, too. A pod's shim may be anybody's
// program: it can clear O_NONBLOCK, which the two share, and package net would then wait in the
// kernel, where Close does not reach it. So each call says for itself that it does not wait.
type socket struct {
	net.Conn
	raw      syscall.RawConn
	datagram bool
}

// stream is a socket by TCP, of which either direction can be ended.
type stream struct {
	*socket
	tcp *net.TCPConn
}

func (s stream) CloseWrite() error { return s.tcp.CloseWrite() }

// fileConn returns the connection of a descriptor that is shared; the file stays the caller's.
func fileConn(file *os.File) (net.Conn, error) {
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	s := &socket{Conn: conn}
	if err := s.examine(); err != nil {
		conn.Close()
		return nil, err
	}
	if tcp, is := conn.(*net.TCPConn); is {
		return stream{s, tcp}, nil
	}
	return s, nil
}

func (s *socket) examine() error {
	conn, can := s.Conn.(syscall.Conn)
	if !can {
		return os.ErrInvalid
	}
	var err error
	if s.raw, err = conn.SyscallConn(); err != nil {
		return err
	}
	var kind int
	var failed error
	err = s.raw.Control(func(fd uintptr) {
		kind, failed = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TYPE)
	})
	s.datagram = kind == unix.SOCK_DGRAM
	if err == nil {
		err = os.NewSyscallError("getsockopt", failed)
	}
	return err
}

// Read implements net.Conn.
func (s *socket) Read(b []byte) (n int, err error) {
	if len(b) == 0 {
		return 0, nil
	}
	var failed error
	err = s.raw.Read(func(fd uintptr) bool {
		return now(func() error {
			n, _, failed = unix.Recvfrom(int(fd), b, unix.MSG_DONTWAIT)
			return failed
		})
	})
	switch {
	case err != nil:
		return 0, err
	case failed != nil:
		return 0, s.fault("read", "recvfrom", failed)
	case n == 0 && !s.datagram:
		return 0, io.EOF
	}
	return n, nil
}

// Write implements net.Conn.
func (s *socket) Write(b []byte) (written int, err error) {
	for {
		var n int
		var failed error
		err = s.raw.Write(func(fd uintptr) bool {
			return now(func() error {
				n, failed = unix.SendmsgN(int(fd), b[written:], nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
				return failed
			})
		})
		switch {
		case err != nil:
			return written, err
		case failed != nil:
			return written, s.fault("write", "sendmsg", failed)
		}
		if written += n; written == len(b) || s.datagram {
			return written, nil
		}
	}
}

// Close implements net.Conn. The shim may have had it linger, and closing would wait for
// the peer.
func (s *socket) Close() error {
	_ = s.raw.Control(func(fd uintptr) { // fails if it is closed already
		_ = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, new(unix.Linger))
	})
	return s.Conn.Close()
}

// now makes a system call, and reports whether it is over: else it is to be made again when the
// descriptor is ready.
func now(call func() error) bool {
	for {
		switch call() {
		case unix.EINTR:
		case unix.EAGAIN:
			return false
		default:
			return true
		}
	}
}

func (s *socket) fault(op, call string, err error) error {
	return &net.OpError{Op: op, Net: s.LocalAddr().Network(), Source: s.LocalAddr(), Addr: s.RemoteAddr(), Err: os.NewSyscallError(call, err)}
}
