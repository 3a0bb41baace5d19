package server

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/shim"
	"github.com/vmlet/vmlet/shim/server/fault"
)

// watch keeps the file open by a descriptor of its own: its path may lead to another
// when the VM is saved.
func (o *opener) watch(f *plan.File, file, exclusive *os.File, held *disk.Identity) (err error) {
	d := watchedDisk{name: cmp.Or(f.DiskName, f.PartOf), layer: f.Layer, field: f.Field, path: f.Path, write: f.Write, exclusive: exclusive, held: held}
	if f.Disk != nil {
		d.format = string(f.Disk.Format)
	}
	if d.file, err = os.Open(linkTo(file)); err != nil {
		return contract.Errorf("%s: open again: %w", contract.ObjectName(f.Path), err)
	}
	o.undo.Push(func() error { return d.close() })
	if inherits(f) {
		if d.shared, err = duplicate(file); err != nil {
			return contract.Errorf("%s: %w", contract.ObjectName(f.Path), err)
		}
	}
	o.disks = append(o.disks, d)
	return nil
}

// exclusively keeps other writers off a block device for as long as what it returns is open: the file for
// a VMM that inherits it, else one that the shim keeps, as the VMM may never close what it inherits. Of a device that VMs
// share, or read, none can have that: what is seen is one that has it to itself.
func (o *opener) exclusively(f *plan.File, file *os.File) (vmms, kept *os.File, err error) {
	var exclusive *os.File
	if f.Shared || !f.Write {
		err = disk.CheckFree(file)
	} else {
		exclusive, err = disk.Exclusively(file)
	}
	var used *disk.DeviceInUseError
	switch {
	case errors.As(err, &used):
		return file, nil, fault.New(shim.CodePrecondition, f.Field, "disk %s, %s: %v", cmp.Or(f.DiskName, f.PartOf), contract.ObjectName(f.Path), used)
	case err != nil, exclusive == nil:
		return file, nil, err
	case inherits(f):
		return exclusive, nil, file.Close()
	}
	o.undo.Push(func() error { return closeFile(exclusive) })
	return file, exclusive, nil
}

// expected is what a file must be, if the plan says what that is. In another pod it is another
// file where the image has brought it, which has been compared with its sum, or where a
// container hands it out, whose image is chosen by digest: then only what it has inside is
// compared.
func (o *opener) expected(f *plan.File, now disk.Identity) *disk.Identity {
	brought := slices.ContainsFunc(o.moved, func(m memory.File) bool { return m.Path == filepath.Clean(f.Path) })
	if f.Identity == nil || !brought && !o.handedOut(f) {
		return f.Identity
	}
	want := now
	want.Kind, want.Size, want.HeaderSum, want.SampleSum = f.Identity.Kind, f.Identity.Size, f.Identity.HeaderSum, f.Identity.SampleSum
	return &want
}
