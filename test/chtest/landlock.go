package chtest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// fence is what Landlock leaves of the file system: rulesets that are never taken
// back, so that a path must be allowed by each of them. It is checked here and not
// by the kernel, since a whole test process would be fenced in.
type fence struct{ rulesets [][]rule }

// maxFences is how many the kernel allows in each other: LANDLOCK_MAX_NUM_LAYERS in
// security/landlock/limits.h.
const maxFences = 16

// rule allows reading, writing, or both beneath a path, links resolved.
type rule struct {
	path   string
	access string
}

// restrict adds a VM's own paths and its landlock_rules, as the real one derives
// them (ApplyLandlock in vmm/src/vm_config.rs). Paths that are not there yet give
// no rule.
func (f *fence) restrict(c *config) error {
	if len(f.rulesets) == maxFences {
		return os.NewSyscallError("landlock_restrict_self", unix.E2BIG)
	}
	var rules []rule
	add := func(path, access string) {
		if real, err := resolve(path); err == nil && path != "" {
			rules = append(rules, rule{real, access})
		}
	}
	for _, zone := range c.Memory.Zones {
		add(zone.File, "rw")
	}
	for _, disk := range c.Disks {
		add(disk.Path, "rw")
	}
	for _, path := range []string{c.Payload.Firmware, c.Payload.Kernel, c.Payload.Initramfs, c.Rng.Src} {
		add(path, "r")
	}
	if c.Tpm != nil {
		add(c.Tpm.Socket, "rw")
	}
	if c.Vsock != nil {
		add(filepath.Dir(c.Vsock.Socket), "w")
	}
	if len(c.Net) > 0 {
		add("/dev/net/tun", "rw")
	}
	for _, r := range c.Rules {
		if err := checkAccess(r.Access); err != nil {
			return err
		}
		add(r.Path, r.Access)
	}
	f.rulesets = append(f.rulesets, rules)
	return nil
}

func checkAccess(access string) error {
	if access == "" || strings.Trim(access, "rw") != "" {
		return fmt.Errorf("access %q: only r and w are known", access)
	}
	return nil
}

// resolve is filepath.EvalSymlinks for one who may not enter the folders on the way,
// but has the file open: "/proc/self/fd/3".
func resolve(path string) (string, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	return os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
}

// allows tells whether a path may be read and written. What is not there yet is
// judged by its folder.
func (f *fence) allows(path, access string) error {
	real, err := resolve(path)
	if err != nil {
		parent, err := resolve(filepath.Dir(path))
		if err != nil {
			return nil // the kernel will say that it is not there
		}
		real = filepath.Join(parent, filepath.Base(path))
	}
	for _, rules := range f.rulesets {
		left := access
		for _, r := range rules {
			if real == r.path || strings.HasPrefix(real, strings.TrimSuffix(r.path, "/")+"/") {
				left = strings.Trim(left, r.access)
			}
		}
		if left != "" {
			return &fs.PathError{Op: "open", Path: path, Err: unix.EACCES}
		}
	}
	return nil
}

// open is os.OpenFile within the fence.
func (f *fence) open(path string, flags int, mode fs.FileMode) (*os.File, error) {
	access := "r"
	switch {
	case flags&os.O_RDWR != 0:
		access = "rw"
	case flags&os.O_WRONLY != 0:
		access = "w"
	}
	if err := f.allows(path, access); err != nil {
		return nil, err
	}
	return os.OpenFile(path, flags, mode)
}

// remove is os.Remove within the fence: it needs to write in the folder.
func (f *fence) remove(path string) {
	if f.allows(filepath.Dir(path), "w") == nil {
		os.Remove(path)
	}
}
