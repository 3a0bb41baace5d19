package prepare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/internal/filesocket"
	"github.com/vmlet/vmlet/launch"
)

// overlay makes an image over the base, or keeps the one that is there.
func (p Preparer) overlay(ctx context.Context, o launch.Overlay, path string) (result, error) {
	if size, is, err := deviceSize(sysfsBlock, o.Base); is || err != nil {
		return overDevice(o, path, size, err)
	}
	base, err := p.openBase(ctx, o)
	if err != nil {
		return result{}, err
	}
	defer base.Close()
	fault := func(format string, args ...any) (result, error) {
		err := fmt.Errorf(format, args...)
		if o.Image != "" {
			return result{}, &imageFault{o.Image, err}
		}
		return result{}, fmt.Errorf("%s %w", o.Base, err)
	}
	info, err := disk.Probe(base)
	if err != nil {
		return fault("has a disk that can't be used: %w", err)
	}
	format, err := baseFormat(info)
	if err == nil && o.Image != "" {
		err = refuseForeign(info, path)
	}
	if err != nil {
		return fault("%w", err)
	}
	size := info.VirtualSize
	if format == disk.Raw {
		size = info.FileSize
	}
	switch {
	case size == 0:
		return fault("has an empty disk: it must have what the guest boots from or reads")
	case o.Size > 0 && o.Size < size:
		return fault("has a disk of %d bytes, which can't be shrunk to the %d that were asked for: ask for more, or for no size", size, o.Size)
	}
	below := disk.Image{Path: o.Base, Format: format}
	if err := makeOverlay(path, below, max(size, o.Size)); err != nil {
		return fault("has a disk over which no overlay could be made: %w", err)
	}
	made := result{Path: path, Format: string(disk.QCOW2), BackingFiles: []backing{{below.Path, below.Format}}}
	made.lookForDirect(base)
	return made, made.lookAt(path)
}

func (p Preparer) openBase(ctx context.Context, o launch.Overlay) (*os.File, error) {
	if filepath.Dir(filepath.Clean(o.Base)) != filepath.Clean(p.Sockets) {
		f, err := openImage(o.Base, unix.O_RDONLY)
		if errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("it has no %s, and must have an image of that name: import one into it", filepath.Base(o.Base))
		}
		return f, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, socketPatience, fmt.Errorf("its container has not handed out a disk within %v: see that container's log", socketPatience))
	defer cancel()
	f, err := filesocket.Receive(ctx, o.Base)
	var said *filesocket.Fault
	switch {
	case err == nil || o.Image == "":
		return f, err
	case errors.As(err, &said):
		return nil, &imageFault{o.Image, said}
	}
	return nil, &imageFault{o.Image, fmt.Errorf("can't be used: %w", err)}
}

// baseFormat is the format of an image that can lie beneath others, all by itself.
func baseFormat(info disk.Info) (disk.Format, error) {
	h := info.Header
	switch {
	case info.Format == disk.Raw || info.Format == disk.LUKS:
		return disk.Raw, nil // a guest that encrypts a whole disk is served, too
	case info.Format != disk.QCOW2:
		return "", fmt.Errorf("has a disk in format %s: convert it to qcow2 (qemu-img convert -O qcow2)", info.Format)
	case h.BackingFile != "":
		return "", fmt.Errorf("has a qcow2 disk that lies over another file, %.100q: flatten it (qemu-img convert -O qcow2)", h.BackingFile)
	case h.ExternalData:
		return "", errors.New("has a qcow2 disk whose data is in another file: convert it (qemu-img convert -O qcow2)")
	case h.Encryption != "":
		return "", fmt.Errorf("has a qcow2 disk that is encrypted (%s): convert it (qemu-img convert -O qcow2)", h.Encryption)
	case h.Corrupt:
		return "", errors.New("has a qcow2 disk that is marked corrupt: repair a copy of it (qemu-img check -r all)")
	case h.UnknownFeatures != 0:
		return "", fmt.Errorf("has a qcow2 disk with features that vmlet doesn't know (incompatible_features %#x): convert it (qemu-img convert -O qcow2)", h.UnknownFeatures)
	}
	return disk.QCOW2, nil
}

// refuseForeign refuses what an image has in place of a disk. A VM that already has an overlay goes on.
func refuseForeign(info disk.Info, overlay string) error {
	if info.Foreign == nil {
		return nil
	}
	if _, err := os.Lstat(overlay); err == nil {
		return nil
	}
	return fmt.Errorf("has a disk that can't be used: %w", info.Foreign)
}

// makeOverlay gives an overlay its name when it is whole. One that is there has what the
// guest wrote before its container was started again.
func makeOverlay(path string, base disk.Image, size int64) (err error) {
	if there, err := overlayThere(path, base); there || err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if err := disk.CreateOverlay(f, base, size); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func overlayThere(path string, base disk.Image) (bool, error) {
	f, err := openImage(path, unix.O_RDONLY)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	info, err := disk.Probe(f)
	if err != nil {
		return false, err
	}
	return true, disk.Check(info, disk.Expectation{Field: "overlay", Image: disk.Image{Path: path, Format: disk.QCOW2}, Backing: []disk.Image{base}})
}

// openImage opens a file or a block device, not what a symbolic link of that name leads to:
// anyone who can write to a volume is not to choose another file of the pod. The name has no
// bearing on what may be waited for: a FIFO is not.
func openImage(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0o660)
	if errors.Is(err, unix.ELOOP) {
		return nil, contract.Errorf("%s is a symbolic link: put the image itself there", contract.ObjectName(path))
	}
	return f, err
}
