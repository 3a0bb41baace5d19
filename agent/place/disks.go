package place

import (
	"fmt"
	"os"

	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"golang.org/x/sys/unix"
)

// WrittenDisk is a disk that a VM may write to.
type WrittenDisk struct {
	// Index in the specification's disks, Name and Path as it has them.
	Index      int
	Name, Path string
	File       FileID
	// Shareable: other VMs may write to it at the same time.
	Shareable bool
}

// IsFile says whether another disk is the same file.
func (d WrittenDisk) IsFile(other WrittenDisk) bool { return d.File == other.File }

// Excludes says whether another VM can't have the other disk while one has this one.
func (d WrittenDisk) Excludes(other WrittenDisk) bool {
	return d.IsFile(other) && !(d.Shareable && other.Shareable)
}

// FileID is what the kernel knows a file by, whatever its name: a block device by its number, another file by
// its inode as well.
type FileID struct {
	Block         bool
	Device, Inode uint64
}

func (id FileID) String() string {
	if id.Block {
		return fmt.Sprintf("block device %d:%d", unix.Major(id.Device), unix.Minor(id.Device))
	}
	return "one file"
}

// FileIDOf is that of what stat(2) has described.
func FileIDOf(st *unix.Stat_t) FileID {
	if st.Mode&unix.S_IFMT == unix.S_IFBLK {
		return FileID{Block: true, Device: uint64(st.Rdev)}
	}
	return FileID{Device: uint64(st.Dev), Inode: st.Ino}
}

// WrittenDisks are those disks of a specification that a VM may write to, and that find knows.
func WrittenDisks(s *specv1.VirtualMachineSpec, find func(path string) (FileID, error)) (written []WrittenDisk) {
	for i, d := range s.GetDisks() {
		if d.GetReadOnly() {
			continue
		}
		if id, err := find(d.GetPath()); err == nil { // else its start says what is wrong
			written = append(written, WrittenDisk{Index: i, Name: d.GetName(), Path: d.GetPath(), File: id, Shareable: d.GetShareable()})
		}
	}
	return written
}

// Written goes by the node's own paths.
func (h OnNode) Written(s *specv1.VirtualMachineSpec) []WrittenDisk {
	return WrittenDisks(s, func(path string) (FileID, error) {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return FileID{}, &os.PathError{Op: "stat", Path: path, Err: err}
		}
		return FileIDOf(&st), nil
	})
}
