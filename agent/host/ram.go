package host

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// RAM is the tmpfs that guest RAM is in, one file a VM.
type RAM struct{ dir string }

// MountRAM mounts a tmpfs at dir, or takes the one that an earlier agent
// mounted there. size and huge are tmpfs's options (tmpfs(5)); those of a mount
// that is there are adjusted. A size that is less than guests have in it is logged, and
// the mount keeps the one that it has: they run, and want their agent.
func MountRAM(dir, size, huge string, log *slog.Logger) (*RAM, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	mounted, err := isMount(dir)
	if err != nil {
		return nil, err
	}
	r := &RAM{dir}
	err = r.mount(mounted, "size="+size, huge)
	if mounted && errors.Is(err, unix.EINVAL) {
		if r.mount(true, "", huge) == nil {
			has, used, _ := r.Usage()
			log.Warn("ram.size is less than guests have in memory: the mount keeps its size", "mount", dir, "wanted", size, "size", has, "used", used)
			return r, nil
		}
	}
	if errors.Is(err, unix.EPERM) {
		err = fmt.Errorf("%w: the agent has to be root, and in a container privileged", err)
	}
	if err != nil {
		return nil, fmt.Errorf("mounting a tmpfs for guest RAM at %s (size=%s, huge=%s): %w", dir, size, huge, err)
	}
	return r, nil
}

// mount mounts the tmpfs, or changes the options of the one that is there.
func (r *RAM) mount(there bool, size, huge string) error {
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	options := []string{"mode=0700"}
	if there {
		flags |= unix.MS_REMOUNT
	}
	if size != "" {
		options = append(options, size)
	}
	plain := strings.Join(options, ",")
	if !there && huge == "never" {
		// A kernel without transparent huge pages does not know the option.
		return unix.Mount("vmlet-ram", r.dir, "tmpfs", flags, plain)
	}
	err := unix.Mount("vmlet-ram", r.dir, "tmpfs", flags, plain+",huge="+huge)
	if err != nil && huge == "never" {
		err = unix.Mount("vmlet-ram", r.dir, "tmpfs", flags, plain)
	}
	return err
}

// isMount says whether a filesystem is mounted at just this folder.
func isMount(dir string) (bool, error) {
	var here, above unix.Stat_t
	if err := unix.Lstat(dir, &here); err != nil {
		return false, err
	}
	if err := unix.Lstat(filepath.Dir(dir), &above); err != nil {
		return false, err
	}
	return here.Dev != above.Dev, nil
}

// Path of a VM's RAM file, which the shim makes.
func (r *RAM) Path(vm string) string { return filepath.Join(r.dir, vm) }

// Room is the size of the tmpfs in bytes, also of what is taken; all there is
// if it can't be asked.
func (r *RAM) Room() uint64 {
	var st unix.Statfs_t
	if err := unix.Statfs(r.dir, &st); err != nil {
		return math.MaxUint64
	}
	return st.Blocks * uint64(st.Bsize)
}

// Usage is the size of the tmpfs and what is taken of it, in bytes. False: it can't
// be asked.
func (r *RAM) Usage() (size, used uint64, ok bool) {
	var st unix.Statfs_t
	if err := unix.Statfs(r.dir, &st); err != nil || st.Type != unix.TMPFS_MAGIC {
		return 0, 0, false
	}
	unit := uint64(st.Bsize)
	return st.Blocks * unit, (st.Blocks - st.Bfree) * unit, true
}

// Remove deletes a VM's RAM file, if it is there.
func (r *RAM) Remove(vm string) error { return removeIfThere(r.Path(vm)) }

// Sweep deletes the files that keep does not want, and names them.
func (r *RAM) Sweep(keep func(vm string) bool) (removed []string, err error) {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, e := range entries {
		if !keep(e.Name()) {
			removed = append(removed, e.Name())
			errs = append(errs, r.Remove(e.Name()))
		}
	}
	return removed, errors.Join(errs...)
}

// Unmount takes the mount away if no file is in it, and says so.
func (r *RAM) Unmount() (done bool, err error) {
	entries, err := os.ReadDir(r.dir)
	if err != nil || len(entries) > 0 {
		return false, err
	}
	if err := unix.Unmount(r.dir, unix.UMOUNT_NOFOLLOW); err != nil {
		return false, fmt.Errorf("unmounting %s: %w", r.dir, err)
	}
	return true, nil
}

// HugePageMounts reads where hugetlbfs is mounted, by page size in bytes, from
// the content of /proc/self/mountinfo (proc(5)). The first mount of a size counts.
func HugePageMounts(mountinfo io.Reader) (map[uint64]string, error) {
	found := make(map[uint64]string)
	lines := bufio.NewScanner(mountinfo)
	for lines.Scan() {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		fields, super := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(super) < 3 || super[0] != "hugetlbfs" {
			continue
		}
		size := pageSizeOption(super[2])
		if _, there := found[size]; size != 0 && !there {
			found[size] = fields[4]
		}
	}
	return found, lines.Err()
}

// pageSizeOption finds pagesize=2M among a mount's options; 0: it isn't there.
func pageSizeOption(options string) uint64 {
	for o := range strings.SplitSeq(options, ",") {
		value, ok := strings.CutPrefix(o, "pagesize=")
		if !ok || value == "" {
			continue
		}
		unit := uint64(1)
		switch value[len(value)-1] {
		case 'K':
			unit = 1 << 10
		case 'M':
			unit = 1 << 20
		case 'G':
			unit = 1 << 30
		}
		n, err := strconv.ParseUint(strings.TrimRight(value, "KMG"), 10, 32)
		if err == nil {
			return n * unit
		}
	}
	return 0
}
