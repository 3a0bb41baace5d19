package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Shut limits the cgroup to no process at all, so that none can fork (pids.max,
// Documentation/admin-guide/cgroup-v1/pids.rst). Without the controller nothing is done.
func (v *v1) Shut(c Cgroup) error {
	for _, s := range v.hierarchy {
		if folder, ok := v.folder(s, c); ok && s.Name() == "pids" {
			return wrapCgroup("shut", c, put(filepath.Join(folder, "pids.max"), "0"))
		}
	}
	return nil
}

// Shut has the kernel kill all in the cgroup at once (cgroup.kill, Linux 5.14 and
// later); before that it limits the cgroup to no process, as v1's does.
func (v v2) Shut(c Cgroup) error {
	folder := filepath.Join(v.mount, c.Paths[""])
	err := put(filepath.Join(folder, "cgroup.kill"), "1")
	if errors.Is(err, fs.ErrNotExist) {
		err = put(filepath.Join(folder, "pids.max"), "0")
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return wrapCgroup("shut", c, err)
}

// put writes to a file of the kernel's. It makes none.
func put(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
