package driver

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// fileID tells a file from all others that there are.
type fileID struct{ device, inode uint64 }

// openedBy counts by how many descriptors a process has each regular file and block
// device open.
func openedBy(pid int) (map[fileID]int, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("see what cloud-hypervisor has opened: %w", err)
	}
	out := make(map[fileID]int)
	for _, e := range entries {
		var st unix.Stat_t
		err := unix.Stat(dir+"/"+e.Name(), &st)
		if errors.Is(err, unix.ENOENT) {
			continue // closed meanwhile
		}
		if err != nil {
			return nil, &os.PathError{Op: "stat", Path: dir + "/" + e.Name(), Err: err}
		}
		if kind := st.Mode & unix.S_IFMT; kind == unix.S_IFREG || kind == unix.S_IFBLK {
			out[fileID{st.Dev, st.Ino}]++
		}
	}
	return out, nil
}

// hasOpened wants each of the files opened once more than before.
func (m *machine) hasOpened(before map[fileID]int, files []*os.File) error {
	after, err := openedBy(m.link.PID)
	if err != nil {
		return err
	}
	for _, f := range files {
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil {
			return &os.PathError{Op: "stat", Path: f.Name(), Err: err}
		}
		if id := (fileID{st.Dev, st.Ino}); after[id] <= before[id] {
			return fmt.Errorf("cloud-hypervisor has opened another file than the one that was checked at %s: it was replaced meanwhile", f.Name())
		}
	}
	return nil
}
