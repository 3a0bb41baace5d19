package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/shim"
)

// readImage returns what the agent wants to know of the image to restore, and puts its disks back. volume is
// the folder that has it; nil: it is found by its path.
func (o podOptions) readImage(ctx context.Context, volume *os.File) ([]byte, error) {
	img, err := o.openImage(volume)
	if errors.Is(err, fs.ErrNotExist) {
		err = &missingImage{err}
	}
	if err != nil {
		return nil, fmt.Errorf("the image to restore: %w", err)
	}
	defer debug.FreeOSMemory() // its manifest may be large
	defer img.Close()
	head, err := headOf(img.Manifest(), filepath.Join(img.Path(), memory.ManifestName))
	if err != nil {
		return nil, fmt.Errorf("the image to restore: %w", err)
	}
	return head, o.putBack(ctx, img)
}

func (o podOptions) openImage(volume *os.File) (*memory.Image, error) {
	if volume != nil {
		return memory.OpenIn(volume, filepath.Base(o.restore.Directory))
	}
	return memory.Open(o.restore.Directory)
}

// headOf is a manifest without the sums of the image's chunks, which this process alone needs: those of a
// large guest are many MiB.
func headOf(m *memory.Manifest, path string) ([]byte, error) {
	head, err := m.Head()
	if err == nil && len(head) > shim.MaxPodManifest {
		err = contract.Errorf("%s has %d bytes beside the sums of its chunks, and a VM in a pod may have %d: restore it with vmlet restore, outside of pods",
			contract.ObjectName(path), len(head), shim.MaxPodManifest)
	}
	return head, err
}

// putBack brings the disks that the image has back to where its specification names them.
// Cut off at any point it can be done again.
func (o podOptions) putBack(ctx context.Context, img *memory.Image) error {
	if o.restore.Once {
		if err := img.CheckUnused(); err != nil {
			return err
		}
	}
	files := img.Manifest().Files
	if len(files) == 0 {
		return nil
	}
	lock, err := img.LockShared()
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	if lock != nil {
		defer lock.Unlock()
	}
	made, err := os.OpenRoot(o.made)
	if err != nil {
		return fmt.Errorf("the folder for the image's disks: %w", err)
	}
	defer made.Close()
	for i, f := range files {
		if err := o.putBackOne(ctx, img, made, f); err != nil {
			return fmt.Errorf("files[%d] of the image to restore: %w", i, err)
		}
	}
	return nil
}

// putBackOne gives a file its name when it is whole. The image's author must not
// choose any other file of the pod.
func (o podOptions) putBackOne(ctx context.Context, img *memory.Image, made *os.Root, f memory.File) (err error) {
	name := filepath.Base(f.Path)
	if filepath.Dir(f.Path) != filepath.Clean(o.made) || !filepath.IsLocal(name) {
		return fmt.Errorf("path: %.300q is not in %s, where a pod's disks are made", f.Path, o.made)
	}
	temp := ".restoring"
	if err := made.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	to, err := made.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(img.CopyOut(ctx, f, to), to.Close())
	if err == nil {
		err = made.Rename(temp, name)
	}
	if err != nil {
		return errors.Join(err, made.Remove(temp))
	}
	return nil
}

// unshown is what an agent said of an image in a volume that is attached, which it was not shown: one from before there were
// such looks for it in the pod, and takes it for damaged. It has no reason, so that it is tried again, without
// such a volume.
func unshown(e contract.Ending) contract.Ending {
	if contract.RestoreRefused(e.Reason) {
		e.Reason = ""
		const unknown = "the agent of the node knows no image in a volume that is attached, as one does that is older than the VM's container: "
		e.Message = unknown + e.Message
		if len(e.Faults) > 0 {
			e.Faults = append([]contract.Fault{{Text: unknown}}, e.Faults...)
		}
	}
	return e
}

// withReason adds the reason why a VM can't be restored, by which the cluster half decides whether to try again.
// cause is the error itself, of which the message tells.
func withReason(e contract.Ending, cause error) contract.Ending {
	if e.Reason == "" { // else the node's agent has refused it
		e.Reason = restoreReason(cause)
	}
	return e
}

// restoreReason is empty if there is none: then it may well be tried again.
func restoreReason(err error) string {
	var (
		used    *memory.UsedError
		damaged *memory.DamagedError
		format  *memory.FormatError
		refused *shim.Error
	)
	switch {
	case errors.As(err, &used):
		return contract.RestoreImageUsed
	case errors.As(err, &refused) && refused.Code == shim.CodeChangedDisk:
		return contract.RestoreDiskChanged
	case errors.Is(err, memory.ErrNewerFormat):
		return contract.RestoreImageUnfit
	case errors.Is(err, unix.EIO), errors.Is(err, unix.ESTALE): // the volume's failure, not the image's
		return ""
	case errors.As(err, &damaged), errors.As(err, &format), errors.As(err, &refused) && refused.Code == shim.CodeDamaged:
		return contract.RestoreImageDamaged
	case errors.Is(err, memory.ErrNotImage), errors.As(err, new(*missingImage)):
		return contract.RestoreImageMissing
	}
	return ""
}

// missingImage is about a folder, or its manifest, that is not there.
type missingImage struct{ err error }

func (e *missingImage) Error() string { return e.err.Error() }
func (e *missingImage) Unwrap() error { return e.err }
