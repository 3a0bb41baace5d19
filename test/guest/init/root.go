package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// handOver mounts a device as the root filesystem and becomes the init there.
// It returns only if that fails.
func handOver(device, kind, init string, readOnly bool) error {
	if kind == "" {
		kind = "ext4"
	}
	if init == "" {
		init = "/sbin/init"
	}
	if err := waitFor(device, 10*time.Second); err != nil {
		return err
	}
	if err := os.MkdirAll("/root", 0o755); err != nil {
		return err
	}
	var flags uintptr
	if readOnly {
		flags = unix.MS_RDONLY
	}
	if err := unix.Mount(device, "/root", kind, flags, ""); err != nil {
		return fmt.Errorf("mounting %s as %s: %w", device, kind, err)
	}
	for _, path := range []string{"/dev", "/proc", "/sys"} {
		if err := unix.Mount(path, "/root"+path, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("moving %s: %w", path, err)
		}
	}
	// What is left behind would stay in memory: the modules are most of it.
	if err := errors.Join(os.RemoveAll("/modules"), os.Chdir("/root")); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("moving the new root: %w", err)
	}
	if err := errors.Join(unix.Chroot("."), os.Chdir("/")); err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", init, unix.Exec(init, []string{init}, os.Environ()))
}

// resume has the kernel that has suspended itself to a device go on in this one's place. It
// returns if there is none.
func resume(device string) error {
	if err := waitFor(device, 10*time.Second); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Stat(device, &st); err != nil {
		return fmt.Errorf("stat: %w", err)
	}
	return os.WriteFile("/sys/power/resume", fmt.Appendf(nil, "%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev)), 0)
}

// waitFor waits for a device that its driver has found, but not yet announced.
func waitFor(device string, patience time.Duration) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); time.Now().Before(end); <-tick.C {
		if _, err := os.Stat(device); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%s did not appear within %v", device, patience)
}
