package prepare

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/launch"
)

// An image has whole MiB, as tools that copy it expect, or, where it is smaller, whole
// sectors. In bytes.
const (
	mebibyte = 1 << 20
	sector   = 512
)

// raw makes or grows a raw image.
func (p Preparer) raw(r launch.Raw, path string) (result, error) {
	made := result{Path: path, Format: string(disk.Raw)}
	flags := unix.O_RDONLY
	if r.Size > 0 {
		flags = unix.O_RDWR | unix.O_CREAT
	}
	f, err := openImage(path, flags)
	switch {
	case errors.Is(err, os.ErrNotExist) && r.Size == 0:
		return made, fmt.Errorf("there is no %s: the volume must have a raw image of that name", path)
	case errors.Is(err, unix.EROFS), errors.Is(err, os.ErrPermission):
		return made, fmt.Errorf("%w: its files must be writable for user %d or group %d; or make the disk read-only", err, os.Getuid(), os.Getgid())
	case err != nil:
		return made, err
	}
	defer f.Close()
	info, err := disk.Probe(f)
	if err != nil {
		return made, fmt.Errorf("%s: %w", path, err)
	}
	if info.Format != disk.Raw && info.Format != disk.LUKS {
		return made, fmt.Errorf("%s has a %s image inside, and must be raw: convert it (qemu-img convert -O raw), or import it with a DataVolume", path, info.Format)
	}
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
		return made, errors.Join(fmt.Errorf("%s: %w", path, err), os.Remove(path))
	}
	if err == nil && size > info.FileSize {
		err = f.Truncate(size)
	}
	return made, err
}

// rawSize is the size that an image should have, in bytes: as much as its volume, less the
// reserve, and less what the filesystem keeps for itself. now is its size, room what the
// filesystem could give it.
func rawSize(r launch.Raw, now, room int64) (int64, error) {
	if r.Size < 0 || r.Reserve < 0 || r.Tolerance < 0 || r.Tolerance > 100 {
		return 0, fmt.Errorf("a size of %d bytes, a reserve of %d and a tolerance of %d %% make no sense", r.Size, r.Reserve, r.Tolerance)
	}
	size := max(0, min(r.Size, room)-r.Reserve)
	unit := int64(mebibyte)
	if size < unit {
		unit = sector
	}
	size -= size % unit
	if now > 0 {
		return max(now, size), nil
	}
	// The reserve and the rounding are ours, and not for the volume to make up for.
	least := r.Size/100*(100-r.Tolerance) - r.Reserve - mebibyte
	if size == 0 || size < least {
		return 0, fmt.Errorf("the volume has room for a disk of %d bytes, and %d were asked for, of which %d %% may be missing: use a larger volume, or raise pvcTolerateLessSpaceUpToPercent in the KubeVirt object",
			size, r.Size, r.Tolerance)
	}
	return size, nil
}
