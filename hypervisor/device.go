package hypervisor

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// failure is why a hypervisor can't be used, on its way to becoming a Status.
type failure struct {
	reason string
	remedy string
	errno  syscall.Errno
}

func (f *failure) Error() string { return f.reason }

func (f *failure) status() Status {
	return Status{Level: Unusable, Reason: f.reason, Remedy: f.remedy, Errno: f.errno}
}

// failed words what the kernel answered to an attempt: "/dev/kvm: permission denied (EACCES)".
func failed(what string, errno syscall.Errno, remedy string) *failure {
	name := unix.ErrnoName(errno)
	if name == "" {
		name = fmt.Sprintf("errno %d", int(errno))
	}
	return &failure{reason: fmt.Sprintf("%s: %s (%s)", what, errno.Error(), name), remedy: remedy, errno: errno}
}

// openDevice opens a hypervisor's character device for reading and writing. absent is the remedy when there is no such device.
func openDevice(path string, absent func() string) (int, *failure) {
	// O_NONBLOCK: a FIFO put in the device's place must not hold us up.
	fd, err := retry(func() (int, error) { return unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0) })
	if err != nil {
		return -1, failed(path, errnoOf(err), openRemedy(path, errnoOf(err), absent))
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return -1, failed(path+": fstat", errnoOf(err), "")
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		unix.Close(fd)
		return -1, &failure{
			reason: fmt.Sprintf("%s is not a character device (mode %#o)", path, st.Mode),
			remedy: "remove it and let the kernel's module make the device",
			errno:  unix.ENOTTY,
		}
	}
	return fd, nil
}

func openRemedy(path string, errno syscall.Errno, absent func() string) string {
	switch errno {
	case unix.ENOENT, unix.ENODEV, unix.ENXIO, unix.ENOTDIR:
		return absent()
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
	return fmt.Sprintf("it has mode %04o, uid %d, gid %d and this process has uid %d: add the user to the group that owns it, or run as root",
		st.Mode&0o7777, st.Uid, st.Gid, unix.Geteuid())
}

// errnoOf returns the errno in err; EIO if there is none, which unix's calls don't do.
func errnoOf(err error) syscall.Errno {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return unix.EIO
}

// retry repeats a call that a signal broke off, as the Go runtime's own signals do.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}
