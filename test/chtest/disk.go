package chtest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// disk is a disk's image.
type disk struct {
	file     *os.File
	readonly bool
	whole    bool // lock all of it, however long it becomes
	raw      bool
	locked   bool
}

func (v *vm) startDisk(d *device, c *diskConfig) error {
	if c.Path == "" {
		return errors.New("a disk without a path")
	}
	flags := os.O_RDWR
	if c.Readonly {
		flags = os.O_RDONLY
	}
	file, err := v.vmm.fence.open(c.Path, flags, 0)
	if err != nil {
		return causedBy(err, "disk image %s", c.Path)
	}
	kind, err := imageType(file)
	switch {
	case err != nil:
	case c.ImageType == "Unknown":
		c.ImageType = kind
	case c.ImageType != kind:
		err = fmt.Errorf("%s is %s, not %s", c.Path, kind, c.ImageType)
	}
	if err != nil {
		file.Close()
		return err
	}
	d.disk = &disk{file: file, readonly: c.Readonly, whole: c.LockGranularity == "Full", raw: kind == "Raw"}
	d.end = func() { file.Close() }
	return nil
}

// imageType tells an image's type by its first bytes.
func imageType(file *os.File) (string, error) {
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	if info.IsDir() {
		return "", fmt.Errorf("%s is a folder", file.Name())
	}
	head := make([]byte, 8)
	n, err := file.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return "", err
	}
	switch head := string(head[:n]); {
	case strings.HasPrefix(head, "QFI\xfb"):
		return "Qcow2", nil
	case head == "vhdxfile":
		return "Vhdx", nil
	}
	return "Raw", nil
}

// lock keeps other VMs off the image, as long as it is open.
func (d *disk) lock() error {
	if d == nil || d.locked {
		return nil
	}
	l := unix.Flock_t{Type: unix.F_WRLCK}
	if d.readonly {
		l.Type = unix.F_RDLCK
	}
	if !d.whole {
		info, err := d.file.Stat()
		if err != nil {
			return err
		}
		l.Len = info.Size()
	}
	if err := unix.FcntlFlock(d.file.Fd(), unix.F_OFD_SETLK, &l); err != nil {
		return causedBy(os.NewSyscallError("fcntl", err), "another VM has %s", d.file.Name())
	}
	d.locked = true
	return nil
}
