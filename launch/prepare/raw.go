package prepare

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/launch"
)

// An image has whole MiB, as tools that copy it expect, or, where it is smaller, whole
// sectors. One that was there has whole blocks: with direct I/O QEMU writes no part of one,
// and the largest that filesystems and disks have is a page's size. In bytes.
const (
	mebibyte = 1 << 20
	block    = 4 << 10
	sector   = 512
)

// overhead is what a filesystem is given for itself, in thousandths of its volume, when an
// image that is there grows, as KubeVirt has it.
const overhead = 55

// raw makes or grows a raw image.
func (p Preparer) raw(r launch.Raw, path string) (result, error) {
	made := result{Path: path, Format: string(disk.Raw)}
	f, err := openRaw(r, path)
	if err != nil {
		return made, err
	}
	defer f.Close()
	info, err := disk.Probe(f)
	if err != nil {
		return made, contract.Errorf("%s: %w", contract.ObjectName(path), err)
	}
	if info.Format != disk.Raw && info.Format != disk.LUKS {
		return made, contract.Errorf("%s has a %s image inside, and must be raw: convert it (qemu-img convert -O raw), or import it with a DataVolume", contract.ObjectName(path), info.Format)
	}
	made.lookForDirect(f)
	if r.Size == 0 || info.BlockDevice {
		return made, nil
	}
	room, err := disk.Room(f)
	if err != nil {
		return made, err
	}
	if filepath.Dir(path) == filepath.Clean(p.Made) {
		room = r.Size
	}
	size, err := rawSize(r, info.FileSize, room)
	if err != nil && info.FileSize == 0 {
		return made, errors.Join(contract.Errorf("%s: %w", contract.ObjectName(path), err), os.Remove(path))
	}
	if err == nil && size > info.FileSize {
		err = f.Truncate(size)
	}
	return made, err
}

// openRaw opens an image, and makes one where there is none and it has a size. One that is
// there is not opened with O_CREAT: where others may write to its folder, the kernel refuses
// that for another user's file (fs.protected_regular).
func openRaw(r launch.Raw, path string) (*os.File, error) {
	flags, mode := unix.O_RDONLY, "readable"
	if r.Size > 0 {
		flags, mode = unix.O_RDWR, "writable"
	}
	f, err := openImage(path, flags)
	if errors.Is(err, os.ErrNotExist) && r.Size > 0 {
		f, err = openImage(path, flags|unix.O_CREAT)
	}
	switch {
	case errors.Is(err, os.ErrNotExist) && r.Size == 0:
		return nil, fmt.Errorf("it has no %s, and must have a raw image of that name: import one into it", filepath.Base(path))
	case errors.Is(err, unix.EROFS), errors.Is(err, os.ErrPermission):
		err = fmt.Errorf("%w: it must be %s for user %d or group %d", err, mode, os.Getuid(), os.Getgid())
		if r.Size > 0 {
			err = fmt.Errorf("%w; or make the disk read-only", err)
		}
	}
	return f, err
}

// rawSize is the size that an image should have, in bytes: as much as its volume, less the
// reserve, and less what the filesystem keeps for itself. now is its size, room what the
// filesystem could give it.
func rawSize(r launch.Raw, now, room int64) (int64, error) {
	if r.Size < 0 || r.Reserve < 0 || r.Tolerance < 0 || r.Tolerance > 100 {
		return 0, fmt.Errorf("a size of %d bytes, a reserve of %d and a tolerance of %d %% make no sense", r.Size, r.Reserve, r.Tolerance)
	}
	if now > 0 {
		size := min(r.Size, room)
		size -= size/1000*overhead + r.Reserve
		now += -now & (block - 1)
		return max(now, size-size%mebibyte), nil
	}
	size := max(0, min(r.Size, room)-r.Reserve)
	unit := int64(mebibyte)
	if size < unit {
		unit = sector
	}
	size -= size % unit
	// The reserve and the rounding are ours, and not for the volume to make up for.
	least := r.Size/100*(100-r.Tolerance) - r.Reserve - mebibyte
	if size == 0 || size < least {
		return 0, fmt.Errorf("the volume has room for a disk of %d bytes, and %d were asked for; %d %% of them may be missing: use a larger volume, or raise pvcTolerateLessSpaceUpToPercent in the KubeVirt object",
			size, r.Size, r.Tolerance)
	}
	return size, nil
}
