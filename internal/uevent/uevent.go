// Package uevent tells what the kernel says of its devices: that one was added or
// removed, that a driver was bound to it or taken from it. No file under /sys
// tells of its changes.
package uevent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// kernelGroup is the multicast group of the kernel's own messages; udev's are in
// another (NETLINK_KOBJECT_UEVENT, lib/kobject_uevent.c).
const kernelGroup = 1

// maxMessage is what the kernel makes at most (UEVENT_BUFFER_SIZE and the path
// before it), with room to spare.
const maxMessage = 16 << 10

// Listen tells by a value that something has happened to devices of these
// subsystems ("pci", "mdev"); several happenings may be one value. It also sends
// one when messages were lost. It ends with ctx, and stop waits for that.
func Listen(ctx context.Context, subsystems ...string) (changes <-chan struct{}, stop func(), err error) {
	file, err := open()
	if err != nil {
		return nil, nil, fmt.Errorf("the kernel's messages of devices (netlink, kobject uevent): %w", err)
	}
	l := &listener{file: file, subsystems: subsystems, changes: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() {
		<-ctx.Done()
		file.Close()
	})
	all.Go(func() {
		defer cancel()
		l.read()
	})
	return l.changes, func() { cancel(); all.Wait() }, nil
}

func open() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: kernelGroup}); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "uevent"), nil
}

type listener struct {
	file       *os.File
	subsystems []string
	changes    chan struct{}
}

// read tells changes until the socket is closed.
func (l *listener) read() {
	raw, err := l.file.SyscallConn()
	if err != nil {
		return
	}
	buffer := make([]byte, maxMessage)
	for {
		var n int
		var from unix.Sockaddr
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			n, from, failed = unix.Recvfrom(int(fd), buffer, 0)
			return !errors.Is(failed, unix.EAGAIN) && !errors.Is(failed, unix.EINTR)
		})
		if err != nil {
			return // closed
		}
		if errors.Is(failed, unix.ENOBUFS) || failed == nil && fromKernel(from) && l.matters(buffer[:n]) {
			select {
			case l.changes <- struct{}{}:
			default: // one is reported already
			}
		} else if failed != nil {
			return
		}
	}
}

// fromKernel: any process of root's may send to the group, and has a number.
func fromKernel(from unix.Sockaddr) bool {
	address, ok := from.(*unix.SockaddrNetlink)
	return ok && address.Pid == 0
}

// matters reports whether a message is of one of the subsystems. It is a heading
// ("add@/devices/...") and NAME=value, each ended by a NUL.
func (l *listener) matters(message []byte) bool {
	for field := range bytes.SplitSeq(message, []byte{0}) {
		if name, found := bytes.CutPrefix(field, []byte("SUBSYSTEM=")); found {
			return slices.Contains(l.subsystems, string(name))
		}
	}
	return false
}
