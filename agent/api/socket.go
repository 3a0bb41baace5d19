package api

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"github.com/vmlet/vmlet/internal/posixacl"
	"github.com/vmlet/vmlet/internal/unixsocket"
	"golang.org/x/sys/unix"
)

// clearSocket removes the socket that an earlier agent has left. The caller's lock is
// on its run folder, and the socket may be anywhere: another agent may serve it.
func clearSocket(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is there and is no socket: remove it, or name another", path)
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		return errors.Join(fmt.Errorf("%s: another agent serves it: stop that one, or give this one a socket of its own (--socket, VMLET_SOCKET, or socket in its configuration)", path), conn.Close())
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("whether another agent serves it is unknown: %w", err)
	}
	return os.Remove(path)
}

// Listen makes the API's socket.
func Listen(path string, allowed []uint32) (net.Listener, error) {
	if err := clearSocket(path); err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	// Bound under another name, and renamed when it is only ours: nobody else
	// finds it open for a moment, and a bind of a process at large needs no umask.
	temp := path + unixsocket.TempSuffix
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: temp, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false)
	err = os.Chmod(temp, 0o600)
	for _, uid := range allowed {
		if err == nil {
			err = posixacl.Grant(temp, uid, posixacl.Read|posixacl.Write)
		}
	}
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making the socket %s: %w", path, err), l.Close(), os.Remove(temp))
	}
	return l, nil
}
