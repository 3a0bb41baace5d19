package disk

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/interrupted"
)

// DeviceInUseError is the refusal of a block device that something else has for itself.
type DeviceInUseError struct {
	// Device is its number: "7:0".
	Device string
}

func (e *DeviceInUseError) Error() string {
	return e.sentence().Error()
}

// Faults are the error in parts (contract.FaultsOf).
func (e *DeviceInUseError) Faults() []contract.Fault { return contract.FaultsOf(e.sentence()) }

func (e *DeviceInUseError) sentence() error {
	return contract.Errorf("block device %s is in use: another VM or an import writes to it, or it is mounted, or part of a RAID, LVM or multipath: end that first%s",
		e.Device, contract.Advice("lsblk and fuser -v name it"))
}

// Unwrap makes it an ErrInUse.
func (e *DeviceInUseError) Unwrap() error { return ErrInUse }

// Exclusively opens a block device that f has open for writing again, as its only writer (O_EXCL of open(2)); nil if f is
// something else, or is open for reading. The kernel keeps that for the device, whatever node leads to it: locks go by inode, and
// each container has a node of its own. Others may open the device without O_EXCL meanwhile, so that a VMM may do that by itself
// while the result stays open. The error is a *DeviceInUseError if another holds the device.
func Exclusively(f *os.File) (*os.File, error) {
	return openExclusively(f, unix.O_RDWR)
}

// How often, and after how long, CheckFree looks again: two that check a device at the same moment see each other.
const (
	checks     = 50
	checkAgain = 20 * time.Millisecond
)

// CheckFree returns a *DeviceInUseError if another holds the block device that f has open, as Exclusively does. It is for those that
// share a device, which can't be held by several: it does not keep off one that comes later. Another kind of file is free.
func CheckFree(f *os.File) (err error) {
	for range checks {
		var exclusive *os.File
		if exclusive, err = openExclusively(f, unix.O_RDONLY); exclusive != nil {
			return exclusive.Close()
		}
		if !errors.Is(err, ErrInUse) {
			return err
		}
		time.Sleep(checkAgain)
	}
	return err
}

// openExclusively opens f's block device again, for reading or for both; nil if f is something else, or was not opened for that.
func openExclusively(f *os.File, access int) (*os.File, error) {
	var st unix.Stat_t
	fd := -1
	err := control(f, func(of int) error {
		flags, err := unix.FcntlInt(uintptr(of), unix.F_GETFL, 0)
		if err == nil {
			err = unix.Fstat(of, &st)
		}
		if err != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK || access == unix.O_RDWR && flags&unix.O_ACCMODE == unix.O_RDONLY {
			return err
		}
		again := fmt.Sprintf("/proc/self/fd/%d", of)
		fd, err = interrupted.RetryInt(func() (int, error) {
			return unix.Open(again, access|unix.O_EXCL|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		})
		return err
	})
	switch {
	case errors.Is(err, unix.EBUSY):
		return nil, &DeviceInUseError{deviceName(uint64(st.Rdev))}
	case err != nil:
		return nil, &os.PathError{Op: "open exclusively", Path: f.Name(), Err: err}
	case fd < 0:
		return nil, nil
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
