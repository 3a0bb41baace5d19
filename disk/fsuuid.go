package disk

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/interrupted"
)

// fsUUID is struct fsuuid2 of linux/fs.h.
type fsUUID struct {
	Len  uint8
	UUID [16]byte
}

// getFSUUID is FS_IOC_GETFSUUID of linux/fs.h (Linux 6.9): _IOR(0x15, 0, struct fsuuid2).
const getFSUUID = 2<<30 | uint(unsafe.Sizeof(fsUUID{}))<<16 | 0x15<<8

// filesystemUUID is empty where kernel or filesystem has none to tell.
func filesystemUUID(fd int) (string, error) {
	var u fsUUID
	err := interrupted.Retry(func() error {
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(getFSUUID), uintptr(unsafe.Pointer(&u))); errno != 0 {
			return errno
		}
		return nil
	})
	switch {
	case err == nil && int(u.Len) == len(u.UUID) && u.UUID != [16]byte{}:
		return fmt.Sprintf("%x-%x-%x-%x-%x", u.UUID[:4], u.UUID[4:6], u.UUID[6:8], u.UUID[8:10], u.UUID[10:]), nil
	case err == nil || errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS):
		return "", nil
	}
	return "", fmt.Errorf("FS_IOC_GETFSUUID: %w", err)
}
