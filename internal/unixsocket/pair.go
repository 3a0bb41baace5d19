package unixsocket

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Pair returns the two ends of a stream: one for this process, one to be passed on as a
// descriptor. Both are the caller's.
func Pair(name string) (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	own := os.NewFile(uintptr(fds[0]), name)
	defer own.Close()
	other := os.NewFile(uintptr(fds[1]), name)
	conn, err := net.FileConn(own)
	if err != nil {
		other.Close()
		return nil, nil, err
	}
	return conn, other, nil
}
