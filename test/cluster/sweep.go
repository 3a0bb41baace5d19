package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// prefix is that of clusters' folders, and of their cgroups, which have the
// same name.
const prefix = "vmlet-cluster-"

// claim makes a folder for a cluster. It is locked for as long as the cluster's
// owner runs; folders that nobody has locked are removed, with what else there
// is of their clusters.
func claim(logf func(string, ...any)) (string, *os.File, error) {
	parent, err := filepath.Abs(os.TempDir())
	if err != nil {
		return "", nil, err
	}
	if parent, err = filepath.EvalSymlinks(parent); err != nil {
		return "", nil, err
	}
	for _, covered := range onNode() {
		if strings.HasPrefix(parent+"/", covered+"/") {
			return "", nil, fmt.Errorf("the folder for temporary files is %s, and a cluster's node has another %s: set TMPDIR", parent, covered)
		}
	}
	// Two that start at once must not take a new folder for an old one.
	all, err := lock(parent, unix.LOCK_EX)
	if err != nil {
		return "", nil, err
	}
	defer all.Close()
	if err := sweep(parent, logf); err != nil {
		return "", nil, fmt.Errorf("removing what is left of a cluster: %w", err)
	}
	dir, err := os.MkdirTemp(parent, prefix)
	if err != nil {
		return "", nil, err
	}
	own, err := lock(dir, unix.LOCK_EX|unix.LOCK_NB)
	return dir, own, err
}

// lock is on a folder, and goes with its descriptor.
func lock(dir string, how int) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), how); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("locking %s: %w", dir, err)
	}
	return f, nil
}

func sweep(parent string, logf func(string, ...any)) error {
	dirs, err := filepath.Glob(filepath.Join(parent, prefix+"*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range dirs {
		// Anybody may make a folder of this name; what root made is ours.
		st, err := os.Lstat(dir)
		if err != nil || !st.IsDir() || st.Sys().(*syscall.Stat_t).Uid != 0 {
			continue
		}
		own, err := lock(dir, unix.LOCK_EX|unix.LOCK_NB)
		if err != nil {
			continue // it runs
		}
		logf("removing %s, which a killed owner has left", dir)
		errs = append(errs, removeCgroup(filepath.Base(dir)), detachLoops(dir), os.RemoveAll(dir), own.Close())
	}
	return errors.Join(errs...)
}

// remove takes everything back, whatever there is of it. The folder is last: as
// long as it is there, a sweep finds the rest by it.
func (c *Cluster) remove() error {
	defer c.fail(errors.New("the cluster has been stopped"))
	var errs []error
	for _, n := range c.Nodes() {
		errs = append(errs, n.end())
	}
	if c.bridge != nil {
		c.bridge.Close()
	}
	if c.connected {
		errs = append(errs, c.net.disconnect())
	}
	errs = append(errs, removeCgroup(c.name), detachLoops(c.dir))
	if errors.Join(errs...) == nil {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	return errors.Join(append(errs, c.lock.Close())...)
}
