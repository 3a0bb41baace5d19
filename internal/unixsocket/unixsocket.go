// Package unixsocket has what package net leaves out of unix sockets: who is at
// the other end, and files that are sent without being closed meanwhile.
package unixsocket

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// TempSuffix ends the name under which a socket is bound that gets its own name when
	// it is ready to be found.
	TempSuffix = ".new"
	// MaxPath is how many bytes such a socket's path may have: what an address holds (107
	// and a NUL, unix(7)), less the suffix.
	MaxPath = 107 - len(TempSuffix)
)

// Peer asks the kernel who is at the other end (SO_PEERCRED, unix(7)): who called
// connect(2), or listen(2), as this process's namespaces have it. PID is 0 if
// that process is in none of them.
func Peer(conn *net.UnixConn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var errOption error
	err = raw.Control(func(fd uintptr) {
		cred, errOption = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, errOption); err != nil {
		return nil, fmt.Errorf("asking who is at the other end: %w", err)
	}
	return cred, nil
}

// WithDescriptors calls f with the files' descriptors. None can be closed
// meanwhile. (os.File.Fd gives no such promise.)
func WithDescriptors(files []*os.File, f func(fds []int)) error {
	return collect(files, nil, f)
}

func collect(files []*os.File, fds []int, f func(fds []int)) error {
	if len(files) == 0 {
		f(fds)
		return nil
	}
	raw, err := files[0].SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) {
		inner = collect(files[1:], append(fds, int(fd)), f)
	})
	return errors.Join(err, inner)
}
