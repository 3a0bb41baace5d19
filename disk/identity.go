package disk

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/interrupted"
)

// Kind is what an image is kept in.
type Kind string

const (
	KindFile  Kind = "file"  // a regular file
	KindBlock Kind = "block" // a block device
)

// Identity is what tells an image from another, and from itself after a change. A memory image keeps one for each file of each
// disk, because RAM put back over a disk that has changed destroys the filesystem on it.
//
// It has to be taken when the VMM has let go of its disks (QEMU: when the migration has completed), since a qcow2's metadata may be
// written until then. It can't see a change to a file whose modification time was put back, except in what SampleSum covers. For a
// block device it can show that something changed, never that nothing did: Linux keeps no modification time for one.
type Identity struct {
	// Kind is empty in what was written before there was this field: then Changed compares Device, Inode, Size, ModTimeNs and
	// HeaderSum alone.
	Kind Kind `json:"kind,omitempty"`
	// Device and Inode are the file's. For a block device, Device is the number of the device itself and Inode is 0. Device
	// differs after a reboot or another mount of the same filesystem, and is compared only where there is no Kind.
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
	// Size is in bytes; for a block device by BLKGETSIZE64.
	Size int64 `json:"size"`
	// ModTimeNs is the modification time, in nanoseconds since the epoch; 0 for a block device, where writing doesn't change it.
	ModTimeNs int64 `json:"modTimeNs"`
	// BornNs is when the file was made (statx(2)), which tells it from a later one that got its inode; 0: unknown.
	BornNs int64 `json:"bornNs,omitempty"`
	// FilesystemUUID and FilesystemID are the filesystem's, see filesystem; empty: unknown, and always for a block device.
	FilesystemUUID string `json:"filesystemUuid,omitempty"`
	FilesystemID   string `json:"filesystemId,omitempty"`
	// HeaderSum is Header.Sum for a qcow2, else empty.
	HeaderSum string `json:"headerSum,omitempty"`
	// SampleSum is a sum of the parts of the content that samples lists.
	SampleSum string `json:"sampleSum,omitempty"`
}

// Provable says whether equal identities show that an image is unchanged.
func (id Identity) Provable() bool { return id.Kind != KindBlock }

// Identify returns an image's identity. The file must be open for reading, without O_DIRECT; errors are Probe's.
func Identify(f *os.File) (Identity, error) {
	info, err := Probe(f)
	if err != nil {
		return Identity{}, err
	}
	stated, st, err := stat(f)
	if err != nil {
		return Identity{}, err
	}
	id := Identity{Kind: KindFile, Size: stated.FileSize}
	if info.Header != nil {
		id.HeaderSum = info.Header.Sum
	}
	if stated.BlockDevice {
		id.Kind, id.Device = KindBlock, uint64(st.Rdev)
	} else {
		id.Device, id.Inode, id.ModTimeNs = uint64(st.Dev), st.Ino, st.Mtim.Nano()
		if err := control(f, func(fd int) error { return id.filesystem(fd) }); err != nil {
			return Identity{}, fmt.Errorf("asking for the image's filesystem: %w", err)
		}
	}
	id.SampleSum, err = sampleSum(f, stated)
	return id, err
}

// samples are the offsets of what is read of an image, besides its last sampleSize bytes: a partition table and the superblocks of
// common filesystems (the furthest is that of Btrfs, at 64 KiB), on the whole disk or in a first partition at 1 MiB. Any mount that
// writes changes one of them.
func samples() []int64 { return []int64{0, 1 << 20} }

const sampleSize = 128 << 10

func sampleSum(f *os.File, info Info) (string, error) {
	if info.BlockDevice {
		// Another machine may have written to it. That the cache can't be dropped is no reason to fail.
		_ = control(f, func(fd int) error { return unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED) })
	}
	// Not a CRC: a superblock that ends with its own is the same to it, whatever changes.
	sum := sha256.New()
	for _, at := range append(samples(), max(0, info.FileSize-sampleSize)) {
		if _, err := io.Copy(sum, io.NewSectionReader(f, at, sampleSize)); err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("reading the image's content: %w", err)
		}
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}

// Changed says which facts differ, a phrase each, with the old value first. None: nothing is known to have changed, and if the
// identity is Provable nothing has. A fact that only one of the two has is not compared.
func Changed(before, after Identity) []string {
	var changes []string
	differ := func(differs bool, format string, args ...any) {
		if differs {
			changes = append(changes, fmt.Sprintf(format, args...))
		}
	}
	if before.Kind == "" {
		differ(before.Device != after.Device, "device number %s, now %s", deviceName(before.Device), deviceName(after.Device))
	} else {
		differ(before.Kind != after.Kind, "kind %s, now %s", before.Kind, after.Kind)
		was, is := before.comparableFilesystem(after)
		differ(was != is, "filesystem %s, now %s", was, is)
		differ(both(before.BornNs, after.BornNs) && before.BornNs != after.BornNs, "made at %s, now %s", when(before.BornNs), when(after.BornNs))
		differ(both(before.SampleSum, after.SampleSum) && before.SampleSum != after.SampleSum, "content differs")
	}
	differ(before.Inode != after.Inode, "inode %d, now %d", before.Inode, after.Inode)
	differ(before.Size != after.Size, "size %d bytes, now %d", before.Size, after.Size)
	differ(before.ModTimeNs != after.ModTimeNs, "modified at %s, now %s", when(before.ModTimeNs), when(after.ModTimeNs))
	differ(before.HeaderSum != after.HeaderSum, "qcow2 header %s, now %s", orNone(before.HeaderSum), orNone(after.HeaderSum))
	return changes
}

// comparableFilesystem returns what both know of their filesystems, empty if there is no such thing.
func (id Identity) comparableFilesystem(other Identity) (own, others string) {
	switch {
	case both(id.FilesystemUUID, other.FilesystemUUID):
		return id.FilesystemUUID, other.FilesystemUUID
	case both(id.FilesystemID, other.FilesystemID):
		return id.FilesystemID, other.FilesystemID
	}
	return "", ""
}

func both[T comparable](a, b T) bool {
	var unknown T
	return a != unknown && b != unknown
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

// filesystem fills in what statx(2), statfs(2) and the filesystem itself say, as far as it lasts from one mount to the next.
//
// FilesystemUUID needs Linux 6.9 (FS_IOC_GETFSUUID); ext4, XFS, Btrfs, F2FS and bcachefs have one, and tmpfs has a new one for each
// mount. FilesystemID is f_fsid, which ext4, Btrfs, ZFS, Ceph and SMB keep in every kernel. NFS, FUSE and virtiofs have neither.
func (id *Identity) filesystem(fd int) error {
	var st unix.Statx_t
	err := interrupted.Retry(func() error {
		return unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BTIME, &st)
	})
	if err == nil && st.Mask&unix.STATX_BTIME != 0 {
		id.BornNs = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	}
	if err != nil && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	if id.FilesystemUUID, err = filesystemUUID(fd); err != nil {
		return err
	}
	var fs unix.Statfs_t
	if err := interrupted.Retry(func() error { return unix.Fstatfs(fd, &fs) }); err != nil {
		return err
	}
	id.FilesystemID = lastingID(uint64(uint32(fs.Fsid.Val[0]))|uint64(uint32(fs.Fsid.Val[1]))<<32, id.Device)
	return nil
}

// lastingID is an f_fsid as text, empty where it says nothing: XFS, FAT and others put the device number there, in the kernel's
// encoding (new_encode_dev of linux/kdev_t.h), and many leave it 0.
func lastingID(fsid, device uint64) string {
	major, minor := uint64(unix.Major(device)), uint64(unix.Minor(device))
	if encoded := minor&0xff | major<<8 | minor&^0xff<<12; fsid == 0 || fsid == encoded {
		return ""
	}
	return fmt.Sprintf("%016x", fsid)
}
