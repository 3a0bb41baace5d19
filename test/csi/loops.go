package csi

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// attachLoop gives a file a loop device, which is detached once nobody has it open or mounted:
// nothing stays of a driver that is killed.
func attachLoop(file string) (*os.File, error) {
	content, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	control, err := os.Open("/dev/loop-control")
	if err != nil {
		return nil, err
	}
	defer control.Close()
	config := unix.LoopConfig{Fd: uint32(content.Fd())}
	config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
	for {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("finding a free loop device: %w", err)
		}
		device, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", number), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		err = unix.IoctlLoopConfigure(int(device.Fd()), &config)
		if err == nil {
			return device, nil
		}
		_ = device.Close()
		if !errors.Is(err, unix.EBUSY) { // else somebody else was faster
			return nil, fmt.Errorf("configuring %s: %w", device.Name(), err)
		}
	}
}

// FindLoop is the loop device that a file or another device has, opened; nil if it has none.
func FindLoop(file string) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		return nil, err
	}
	attached, err := filepath.Glob("/sys/block/loop*/loop")
	if err != nil {
		return nil, err
	}
	for _, of := range attached {
		device, err := os.OpenFile("/dev/"+filepath.Base(filepath.Dir(of)), os.O_RDWR, 0)
		if err != nil {
			continue // detached meanwhile
		}
		info, err := unix.IoctlLoopGetStatus64(int(device.Fd()))
		if err == nil && info.Device == st.Dev && info.Inode == st.Ino {
			return device, nil
		}
		_ = device.Close()
	}
	return nil, nil
}
