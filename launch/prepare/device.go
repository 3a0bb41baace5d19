package prepare

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/launch"
)

// sysfsBlock has a folder for each block device, by its number (sysfs-dev of the kernel's ABI).
const sysfsBlock = "/sys/dev/block"

// deviceSize is the size of a block device in bytes. is: the path is one.
//
// The device is not opened: the node's agent gives the pod access to it only when it finds
// the VM, and the VM is announced when its disks are made.
func deviceSize(sysfs, path string) (size int64, is bool, err error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil || info.Mode().Type() != fs.ModeDevice {
		return 0, false, err
	}
	st, known := info.Sys().(*syscall.Stat_t)
	if !known {
		return 0, true, contract.Errorf("%s: its device number is not known", contract.ObjectName(path))
	}
	file := filepath.Join(sysfs, fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev)), "size")
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, true, contract.Errorf("the size of device %s: %w", contract.ObjectName(path), err)
	}
	sectors, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || sectors <= 0 || sectors > maxDeviceSectors {
		return 0, true, contract.Errorf("the size of device %s: %s has %.20q", contract.ObjectName(path), file, text)
	}
	return sectors * sector, true, nil
}

// maxDeviceSectors keeps the size below 2^63 bytes.
const maxDeviceSectors = (1<<63 - 1) / sector

// overDevice makes an overlay over a block device, which is raw whatever it begins with, as a
// guest may have written that.
func overDevice(o launch.Overlay, path string, size int64, err error) (result, error) {
	below := disk.Image{Path: o.Base, Format: disk.Raw}
	if err == nil && o.Size > 0 && o.Size < size {
		err = fmt.Errorf("%s has %d bytes, which can't be shrunk to the %d that were asked for: ask for more, or for no size", o.Base, size, o.Size)
	}
	if err == nil {
		err = makeOverlay(path, below, max(size, o.Size))
	}
	made := result{Path: path, Format: string(disk.QCOW2), BackingFiles: []backing{{below.Path, below.Format}}}
	if err == nil {
		err = made.lookAt(path)
	}
	return made, err
}
