package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/internal/rundir"
	"github.com/vmlet/vmlet/shim/internal/safeopen"
	"github.com/vmlet/vmlet/shim/server/fault"
)

// all opens every file; errors name its field and path.
func (o *opener) all(ctx context.Context) error {
	for i := range o.plan.Files {
		f := &o.plan.Files[i]
		file, err := o.one(ctx, f)
		if err != nil {
			var known *shim.Error
			if errors.As(err, &known) {
				return err
			}
			return fault.Invalid(f.Field, err)
		}
		o.files = append(o.files, file)
	}
	return nil
}

func (o *opener) one(ctx context.Context, f *plan.File) (*os.File, error) {
	if o.renewal != nil {
		if file, err := o.inherit(f); file != nil || err != nil {
			return file, err
		}
	}
	switch f.Kind {
	case plan.FilePath:
		return o.path(ctx, f)
	case plan.FileMemory:
		if o.ram == nil {
			return nil, errors.New("the plan has a file of kind memory, but no memory.path and no image with a memory file")
		}
		return o.ram, nil
	case plan.FileListen:
		return o.listen(f)
	case plan.FileConnect:
		return o.connect(f)
	case plan.FileSocket:
		return o.socket(f)
	case plan.FileConsole:
		if o.console == nil {
			return nil, errors.New("the plan has two consoles")
		}
		file := o.console
		o.console = nil
		return file, nil
	case plan.FileReceived:
		if f.Index < 0 || f.Index >= len(o.received) {
			return nil, fmt.Errorf("the plan wants received descriptor %d, and %d came with it", f.Index, len(o.received))
		}
		if f.Named {
			return o.namedCopy(o.received[f.Index], fmt.Sprintf("received-%d", f.Index))
		}
		return o.received[f.Index], nil
	case plan.FileFolder:
		return o.makeFolder(f)
	case plan.FileEvents:
		return o.makeEvents()
	case plan.FilePair:
		return o.pair(f)
	case plan.FileReady:
		return o.makeReady()
	}
	return nil, contract.Errorf("%s: a file of kind %q is unknown to this shim", contract.ObjectName(f.Path), f.Kind)
}

func (o *opener) pair(f *plan.File) (*os.File, error) {
	if o.pairs == nil {
		return nil, errors.New("a device that is attached has no pair of sockets")
	}
	file, err := o.pairs.take(f.Path)
	if err == nil {
		o.own = append(o.own, file)
	}
	return file, err
}

func (o *opener) listen(f *plan.File) (*os.File, error) {
	name := o.renewal.socket(f.Path)
	file, err := o.run.Listen(name)
	if err != nil {
		return nil, err
	}
	o.own = append(o.own, file)
	o.undo.Push(func() error { return o.run.Remove(name) })
	return file, nil
}

func (o *opener) path(ctx context.Context, f *plan.File) (*os.File, error) {
	if f.Template != "" {
		if err := o.fromTemplate(f); err != nil {
			return nil, err
		}
	}
	file, err := o.open(ctx, f)
	if err != nil {
		return nil, err
	}
	file, exclusive, err := o.exclusively(f, file)
	o.own = append(o.own, file)
	if err != nil {
		return nil, err
	}
	if err := o.checkDisk(f, file, exclusive); err != nil {
		return nil, err
	}
	if f.Direct && safeopen.SetFlag(file, unix.O_DIRECT, true) != nil {
		if f.Shared {
			return nil, fault.New(shim.CodePrecondition, f.Field, "%s: its filesystem has no direct I/O, which a shareable disk needs: use a block device, or another filesystem",
				contract.ObjectName(f.Path))
		}
		// Where the filesystem refuses it the file goes through the page cache.
		o.buffered = append(o.buffered, len(o.files))
	}
	return o.reachable(f, file)
}

// reachable lets the VMM's user open the file again, or a copy of it, where the VMM
// is going to.
func (o *opener) reachable(f *plan.File, file *os.File) (*os.File, error) {
	if f.ByName {
		if err := passable(f.Path, o.plan.User); err != nil {
			return nil, err
		}
	}
	if f.Granted {
		return file, grant(o.plan.User, file, o.lock, f.Write, o.undo)
	}
	if !f.Reopened {
		return file, nil
	}
	readable, err := mayOpen(file, o.plan.User, unix.R_OK)
	if err != nil || readable {
		return file, err
	}
	copied, err := o.copyOf(f, file)
	if err != nil {
		return nil, contract.Errorf("%s: copy it for user %d, who can't read it: %w", contract.ObjectName(f.Path), o.plan.User.UID, err)
	}
	return copied, nil
}

// fromTemplate makes a file that isn't there as a copy of its template. It gets
// its name when it is whole.
func (o *opener) fromTemplate(f *plan.File) error {
	if _, err := os.Lstat(f.Path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	template, err := safeopen.File(f.Template, false)
	if err != nil {
		return err
	}
	defer template.Close()
	dir, err := rundir.Open(filepath.Dir(f.Path))
	if err != nil {
		return err
	}
	defer dir.Close()
	owner := func(file *os.File) error {
		if u := o.plan.User; u != nil {
			return file.Chown(int(u.UID), int(u.GID))
		}
		return nil
	}
	if err := dir.WriteFrom(filepath.Base(f.Path), io.LimitReader(template, maxCopy), 0o600, owner); err != nil {
		return contract.Errorf("copy %s to %s: %w", f.Template, contract.ObjectName(f.Path), err)
	}
	return nil
}

// checkDisk examines an image by the descriptor that the VMM is going to have. exclusive is as in watchedDisk.
func (o *opener) checkDisk(f *plan.File, file, exclusive *os.File) error {
	if f.Disk != nil {
		info, err := disk.Probe(file)
		if err != nil {
			return contract.Errorf("%s: %w", contract.ObjectName(f.Path), err)
		}
		err = disk.Check(info, *f.Disk)
		if err == nil {
			err = o.refuseForeign(f, info)
		}
		if err != nil {
			return diskFault(f, err)
		}
	}
	if f.Disk != nil && o.plan.Restore != nil {
		if err := lockDisk(f, file); err != nil {
			return err
		}
	}
	var held *disk.Identity
	if watched := f.DiskName != "" || f.PartOf != ""; watched && o.plan.Restore != nil || f.Identity != nil {
		now, err := disk.Identify(file)
		if err != nil {
			return contract.Errorf("%s: %w", contract.ObjectName(f.Path), err)
		}
		if err := checkIdentity(f, o.expected(f, now), now, o.watched); err != nil {
			return err
		}
		held = &now
	}
	if f.DiskName == "" && f.PartOf == "" {
		return nil
	}
	return o.watch(f, file, exclusive, held)
}

// diskUnit is what sizes of disks are multiples of, as tools that make them have it, in bytes.
const diskUnit = 1 << 20

// refuseForeign refuses a file that is no disk, on a node: in a pod that was seen to when its disks
// were prepared. A guest may write an archive to its disk, which may be a file of any VM before:
// one of whole MiB is taken for such a disk, and a restored guest goes on with what it has.
func (o *opener) refuseForeign(f *plan.File, info disk.Info) error {
	if info.Foreign == nil || o.sockets != "" || o.plan.Restore != nil || info.FileSize%diskUnit == 0 {
		return nil
	}
	problem := fmt.Sprintf("%v. If a guest is to have it as it is, give it a size of whole MiB (truncate -s %%1M)", info.Foreign)
	return &disk.Fault{Field: f.Disk.Field, Path: f.Disk.Path, Problem: problem}
}

// diskFault lets the fields that the faults name stand if they are others.
func diskFault(f *plan.File, err error) error {
	var about *disk.Fault
	if errors.As(err, &about) && about.Field != "" && about.Field != f.Field {
		return fault.Invalid("", err)
	}
	text := strings.ReplaceAll(err.Error(), f.Field+": ", "")
	return &shim.Error{Code: shim.CodeInvalid, Field: f.Field, Message: text}
}
