package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/test/csi"
)

// detachLoops takes away the loop devices of a cluster whose processes are gone. Those of volumes
// go by themselves, but the kubelet puts another over each that a pod has, to keep its number.
func detachLoops(dir string) error {
	volumes, err := filepath.Glob(filepath.Join(dir, loopFolder, "*", "content"))
	if err != nil {
		return err
	}
	var errs []error
	for _, volume := range volumes {
		device, err := csi.FindLoop(volume)
		if err != nil || device == nil {
			errs = append(errs, err)
			continue
		}
		over, err := csi.FindLoop(device.Name())
		errs = append(errs, err, detachLoop(over), detachLoop(device))
	}
	return errors.Join(errs...)
}

func detachLoop(device *os.File) error {
	if device == nil {
		return nil
	}
	defer device.Close()
	if err := unix.IoctlSetInt(int(device.Fd()), unix.LOOP_CLR_FD, 0); err != nil && !errors.Is(err, unix.ENXIO) {
		return fmt.Errorf("detaching %s: %w", device.Name(), err)
	}
	return nil
}
