package place

import (
	"fmt"
	"os"

	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"golang.org/x/sys/unix"
)

// UsedDisk is a file of a disk that a VM has: its image, or one below that.
type UsedDisk struct {
	// Field of the specification that names it, Name of the disk, Path as the specification has it.
	Field, Name, Path string
	File              FileID
	// Write: the guest may write to it. Else it reads what must not change.
	Write bool
	// Shareable: other VMs may write to it at the same time that share it, too.
	Shareable bool
}

// Spoils says whether one of two uses of a file writes where the other does, or reads.
func (d UsedDisk) Spoils(other UsedDisk) bool {
	return d.File == other.File && (d.Write || other.Write)
}

// Excludes says whether another VM can't have the other disk while one has this one.
func (d UsedDisk) Excludes(other UsedDisk) bool {
	return d.Spoils(other) && !(d.Shareable && other.Shareable)
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

// UsedDisks are the files of a specification's disks that find knows.
func UsedDisks(s *specv1.VirtualMachineSpec, find func(path string) (FileID, error)) (used []UsedDisk) {
	add := func(d UsedDisk) {
		var err error
		if d.File, err = find(d.Path); err == nil { // else its start says what is wrong
			used = append(used, d)
		}
	}
	for i, d := range s.GetDisks() {
		field := fmt.Sprintf("disks[%d]", i)
		add(UsedDisk{Field: field + ".path", Name: d.GetName(), Path: d.GetPath(), Write: !d.GetReadOnly(), Shareable: d.GetShareable()})
		for j, b := range d.GetBackingFiles() {
			add(UsedDisk{Field: fmt.Sprintf("%s.backingFiles[%d].path", field, j), Name: d.GetName(), Path: b.GetPath()})
		}
	}
	return used
}

// Disks goes by the node's own paths.
func (h OnNode) Disks(s *specv1.VirtualMachineSpec) []UsedDisk {
	return UsedDisks(s, func(path string) (FileID, error) {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return FileID{}, &os.PathError{Op: "stat", Path: path, Err: err}
		}
		return FileIDOf(&st), nil
	})
}
