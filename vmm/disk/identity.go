package disk

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Identity is what tells a writable disk from another, and from itself after a change. A memory image keeps it for each of them,
// because RAM put back over a disk that has changed destroys the file system on it.
//
// It has to be taken when the VMM has let go of its disks (QEMU: when the migration has completed), since a qcow2's metadata may be
// written until then. What it can't see: a change to a block device's content, and one to a file whose modification time was
// put back. Device numbers may differ after a reboot or a new mount without the disk having changed.
type Identity struct {
	// Device and Inode are the file's. For a block device, Device is the number of the device itself and Inode is 0.
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
	// Size is in bytes; for a block device by BLKGETSIZE64.
	Size int64 `json:"size"`
	// ModTimeNs is the modification time, in nanoseconds since the epoch; 0 for a block device, where writing doesn't change it.
	ModTimeNs int64 `json:"modTimeNs"`
	// HeaderSum is Header.Sum for a qcow2, else empty.
	HeaderSum string `json:"headerSum,omitempty"`
}

// Identify returns a disk's identity. The file must be open for reading, without O_DIRECT; errors are Probe's.
func Identify(f *os.File) (Identity, error) {
	info, err := Probe(f)
	if err != nil {
		return Identity{}, err
	}
	stated, st, err := stat(f)
	if err != nil {
		return Identity{}, err
	}
	id := Identity{Size: stated.FileSize}
	if info.Header != nil {
		id.HeaderSum = info.Header.Sum
	}
	if stated.BlockDevice {
		id.Device = uint64(st.Rdev)
		return id, nil
	}
	id.Device, id.Inode, id.ModTimeNs = uint64(st.Dev), st.Ino, st.Mtim.Nano()
	return id, nil
}

// Changed says which facts differ, a phrase each, with the old value first; none if it is the same disk, unchanged.
func Changed(before, after Identity) []string {
	var changes []string
	differ := func(differs bool, format string, args ...any) {
		if differs {
			changes = append(changes, fmt.Sprintf(format, args...))
		}
	}
	differ(before.Device != after.Device, "device number %s, now %s", deviceName(before.Device), deviceName(after.Device))
	differ(before.Inode != after.Inode, "inode %d, now %d", before.Inode, after.Inode)
	differ(before.Size != after.Size, "size %d bytes, now %d", before.Size, after.Size)
	differ(before.ModTimeNs != after.ModTimeNs, "modified at %s, now %s", when(before.ModTimeNs), when(after.ModTimeNs))
	differ(before.HeaderSum != after.HeaderSum, "qcow2 header %s, now %s", orNone(before.HeaderSum), orNone(after.HeaderSum))
	return changes
}

func deviceName(device uint64) string {
	return fmt.Sprintf("%d:%d", unix.Major(device), unix.Minor(device))
}

func when(ns int64) string {
	if ns == 0 {
		return "an unknown time"
	}
	return time.Unix(0, ns).UTC().Format(time.RFC3339Nano)
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
