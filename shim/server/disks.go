package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/fault"
)

// watchedDisk is a file of a disk whose identity goes into images.
type watchedDisk struct {
	name                string
	layer               int // 0: the disk's own image; n: its nth backing file
	field, path, format string
	write               bool
	file                *os.File // read-only, without O_DIRECT
	// shared is the open file description that the VMM has inherited, and whose locks
	// are the VMM's; nil: the VMM opens the file itself.
	shared *os.File
	// exclusive keeps other writers off a block device that the VMM opens itself; nil: shared
	// does, or it is none.
	exclusive *os.File
	// held is what the file must still be when the guest goes on: its memory belongs to
	// that. Nil: the guest has run since the last restore or save, and may have written.
	held *disk.Identity
}

func (d *watchedDisk) close() error {
	var errs []error
	for _, f := range []*os.File{d.file, d.shared, d.exclusive} {
		if f != nil {
			errs = append(errs, closeFile(f))
		}
	}
	return errors.Join(errs...)
}

// closeFile closes a file of a disk that may have been detached: then it is closed.
func closeFile(f *os.File) error {
	if err := f.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// inherits says whether the VMM works on the open file description that it is given.
func inherits(f *plan.File) bool { return !f.Granted && !f.ByName && !f.Reopened }

func duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl F_DUPFD_CLOEXEC", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// lockDisk keeps other programs off a disk whose guest is about to go on from an image:
// a VMM that waits for its state has no lock yet. What the VMM inherits is locked for
// it. One that opens the file itself could not get past that lock, and takes its own as
// it loads its state.
func lockDisk(f *plan.File, file *os.File) error {
	lock := disk.Lock
	if !inherits(f) {
		lock = disk.Unlocked
	}
	err := lock(file, f.Write)
	if errors.Is(err, disk.ErrInUse) {
		return inUse(f.Field, f.Path, err)
	}
	return err
}

func inUse(field, path string, err error) *shim.Error {
	return fault.New(shim.CodePrecondition, field, "%s: %v, most likely another VM: end that first%s",
		contract.ObjectName(path), err, contract.Advice("fuser -v "+path+" names it"))
}

// checkIdentity wants a file to be what it was when the image was saved; nil: any. watched: nobody has
// written to a block device since, unless it shows that.
func checkIdentity(f *plan.File, want *disk.Identity, now disk.Identity, watched bool) error {
	if want == nil {
		return nil
	}
	if changes := disk.Changed(*want, now); len(changes) > 0 {
		return fault.New(shim.CodeChangedDisk, f.Field,
			"%s has changed since the image was saved (%s): the guest's memory would destroy the filesystem on it; put back the disk as it was%s",
			contract.ObjectName(f.Path), strings.Join(changes, "; "), contract.Advice("vmlet restore --allow-changed-disks goes on without"))
	}
	if !watched && !want.Provable() {
		return fault.New(shim.CodeChangedDisk, f.Field,
			"%s cannot be shown to be unchanged since the image was saved, as it is a block device: if somebody has written to it, the guest's memory would destroy the filesystem on it%s",
			contract.ObjectName(f.Path), contract.Advice("if nobody has, use vmlet restore --allow-changed-disks"))
	}
	return nil
}

func unchanged(held []watchedDisk) error {
	ids, err := identify(held)
	if err != nil {
		return err
	}
	for i, d := range held {
		if changes := disk.Changed(*d.held, ids[i]); len(changes) > 0 {
			return fault.New(shim.CodeChangedDisk, d.field,
				"%s has changed while the guest was not running (%s): the guest's memory would destroy the filesystem on it: kill the VM, and boot it afresh%s, or put back the disk and restore",
				contract.ObjectName(d.path), strings.Join(changes, "; "), contract.Advice("vmlet start --cold"))
		}
	}
	return nil
}

func identify(disks []watchedDisk) ([]disk.Identity, error) {
	ids := make([]disk.Identity, len(disks))
	for i, d := range disks {
		var err error
		if ids[i], err = disk.Identify(d.file); err != nil {
			return nil, contract.Errorf("disk %s, %s: %w", d.name, contract.ObjectName(d.path), err)
		}
	}
	return ids, nil
}

// within doesn't wait longer than ctx for disks, which may not answer.
func within[T any](ctx context.Context, do func() (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		o.value, o.err = do()
		done <- o
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("a disk does not answer: %w", context.Cause(ctx))
	}
}

// settleDisks makes what a guest has written durable, which its memory in the image
// takes for written, and returns what the disks are then. Other programs are kept off
// again: QEMU gives up its locks with its disks.
func settleDisks(disks []watchedDisk) ([]disk.Identity, error) {
	for _, d := range disks {
		if !d.write {
			continue
		}
		if err := d.file.Sync(); err != nil {
			return nil, fault.New(shim.CodeInternal, d.field, "%s: what the guest has written can't be made durable: %v", contract.ObjectName(d.path), err)
		}
		if d.shared == nil {
			continue
		}
		if err := disk.Lock(d.shared, true); errors.Is(err, disk.ErrInUse) {
			return nil, inUse(d.field, d.path, err)
		} else if err != nil {
			return nil, contract.Errorf("%s: %w", contract.ObjectName(d.path), err)
		}
	}
	return identify(disks)
}

// diskIdentities are what a manifest has of disks that are held.
func diskIdentities(held []watchedDisk) []memory.DiskIdentity {
	slices.SortStableFunc(held, func(a, b watchedDisk) int { return cmp.Compare(a.layer, b.layer) })
	var all []memory.DiskIdentity
	for _, d := range held {
		own := func(of memory.DiskIdentity) bool { return of.Name == d.name }
		if i := slices.IndexFunc(all, own); i >= 0 {
			all[i].Backing = append(all[i].Backing, diskIdentity(d))
		} else {
			all = append(all, diskIdentity(d))
		}
	}
	return all
}

func diskIdentity(d watchedDisk) memory.DiskIdentity {
	id := d.held
	return memory.DiskIdentity{
		Name: d.name, Path: d.path, Format: d.format,
		Kind: string(id.Kind), Device: id.Device, Inode: id.Inode, Size: uint64(id.Size), ModTime: id.ModTimeNs, HeaderSum: id.HeaderSum,
		Born: id.BornNs, FilesystemUUID: id.FilesystemUUID, FilesystemID: id.FilesystemID, SampleSum: id.SampleSum,
	}
}
