// Package device is how the kernel's character devices are opened and asked, for
// no longer than a limit, and how what comes of it is worded: the errno by name,
// and what an administrator can do.
package device

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/vmlet/vmlet/hypervisor"
	"golang.org/x/sys/unix"
)

// Failure is why a device can't be used, on its way to becoming a hypervisor's Status.
type Failure struct {
	Reason string
	Remedy string
	Errno  syscall.Errno
}

func (f *Failure) Error() string { return f.Reason }

// Sentence is the reason and the remedy in one line.
func (f *Failure) Sentence() string { return f.Status().Sentence() }

// Status is that of a hypervisor which can't be used for this reason.
func (f *Failure) Status() hypervisor.Status {
	return hypervisor.Status{Level: hypervisor.Unusable, Reason: f.Reason, Remedy: f.Remedy, Errno: f.Errno}
}

// Failed words what the kernel answered to an attempt: "/dev/kvm: permission denied (EACCES)".
func Failed(what string, errno syscall.Errno, remedy string) *Failure {
	return &Failure{Reason: fmt.Sprintf("%s: %s (%s)", what, errno.Error(), ErrnoName(errno)), Remedy: remedy, Errno: errno}
}

// ErrnoName is the errno's name: "EACCES", or "errno 4000" for one that has none; empty for 0.
func ErrnoName(errno syscall.Errno) string {
	if errno == 0 {
		return ""
	}
	if name := unix.ErrnoName(errno); name != "" {
		return name
	}
	return fmt.Sprintf("errno %d", int(errno))
}

// maxErrno is above Linux's last (include/uapi/asm-generic/errno.h; MIPS goes to 1133, and doesn't run vmlet).
const maxErrno = 256

// ErrnoOf is the inverse of ErrnoName for those that have a name, and 0 for all else.
func ErrnoOf(name string) syscall.Errno {
	for e := syscall.Errno(1); name != "" && e < maxErrno; e++ {
		if unix.ErrnoName(e) == name {
			return e
		}
	}
	return 0
}

// Open opens a character device for reading and writing. absent is the remedy when there is no such device.
func Open(path string, absent func() string) (int, *Failure) {
	return OpenFor(path, unix.O_RDWR, absent)
}

// OpenFor is Open with the access that is wanted: unix.O_RDONLY, unix.O_RDWR.
func OpenFor(path string, access int, absent func() string) (int, *Failure) {
	// O_NONBLOCK: a FIFO put in the device's place must not hold us up. O_NOCTTY: nor must a terminal become ours.
	flags := access | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	fd, err := Retry(func() (int, error) { return unix.Open(path, flags, 0) })
	if err != nil {
		return -1, Failed(path, Errno(err), openRemedy(path, Errno(err), absent))
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return -1, Failed(path+": fstat", Errno(err), "")
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		unix.Close(fd)
		return -1, &Failure{
			Reason: fmt.Sprintf("%s is not a character device (mode %#o)", path, st.Mode),
			Remedy: "remove it and let the kernel's module make the device",
			Errno:  unix.ENOTTY,
		}
	}
	return fd, nil
}

// Absent reports whether the errno of opening a device says that there is none: no node, or a node with nothing behind it.
func Absent(errno syscall.Errno) bool {
	switch errno {
	case unix.ENOENT, unix.ENODEV, unix.ENXIO, unix.ENOTDIR:
		return true
	}
	return false
}

func openRemedy(path string, errno syscall.Errno, absent func() string) string {
	if Absent(errno) {
		return absent()
	}
	switch errno {
	case unix.EACCES:
		return accessRemedy(path)
	case unix.EPERM:
		return "the device cgroup or a security module forbids it: allow the device for this container or unit (DeviceAllow=)"
	case unix.EISDIR:
		return "remove the folder and let the kernel's module make the device"
	}
	return ""
}

func accessRemedy(path string) string {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return "run as root or give this user access to the device"
	}
	remedy := "add the user to the group that owns it, or run as root"
	if st.Mode&0o060 != 0o060 {
		remedy = "run as root, or let a group have it (chmod g+rw; for good, a udev rule with GROUP and MODE)"
	}
	return fmt.Sprintf("it has mode %04o, uid %d, gid %d and this process has uid %d: %s", st.Mode&0o7777, st.Uid, st.Gid, unix.Geteuid(), remedy)
}

// Errno returns the errno in err; EIO if there is none, which unix's calls don't do.
func Errno(err error) syscall.Errno {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return unix.EIO
}

// Retry repeats a call that a signal broke off, as the Go runtime's own signals do.
func Retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}
