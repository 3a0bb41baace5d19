package vmm

import (
	"slices"

	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
)

// Image is a memory image to be restored.
type Image struct {
	Directory         string
	Manifest          *memory.Manifest
	Lazy              bool
	AllowChangedDisks bool
}

// Restore is what a plan says of it; nil: the VM boots.
func (i *Image) Restore() *plan.Restore {
	if i == nil {
		return nil
	}
	return &plan.Restore{Directory: i.Directory, ImageID: i.Manifest.ID, Lazy: i.Lazy}
}

// DiskIdentity is what one file of a disk was when the image was saved, and must still
// be: layer 0 is the disk's own image, n the nth backing file below it. Nil: it may be
// any, as the user says so, or as the image has none (older ones have none of backing
// files and read-only disks).
func (i *Image) DiskIdentity(name string, layer int) *disk.Identity {
	if i == nil || i.Manifest == nil || i.AllowChangedDisks {
		return nil
	}
	at := slices.IndexFunc(i.Manifest.Disks, func(d memory.DiskIdentity) bool { return d.Name == name })
	if at < 0 {
		return nil
	}
	saved := i.Manifest.Disks[at]
	if layer > 0 {
		if layer > len(saved.Backing) {
			return nil
		}
		saved = saved.Backing[layer-1]
	}
	return &disk.Identity{
		Kind: disk.Kind(saved.Kind), Device: saved.Device, Inode: saved.Inode, Size: int64(saved.Size),
		ModTimeNs: saved.ModTime, BornNs: saved.Born, FilesystemUUID: saved.FilesystemUUID, FilesystemID: saved.FilesystemID,
		HeaderSum: saved.HeaderSum, SampleSum: saved.SampleSum,
	}
}

// Watch has the shim keep the identity of one file of a disk, see DiskIdentity, in the
// images that it saves, and compare it with that in the image that it restores.
func (i *Image) Watch(f *plan.File, name string, layer int) {
	if f.Write {
		f.DiskName = name
	} else {
		f.PartOf, f.Layer = name, layer
	}
	f.Identity = i.DiskIdentity(name, layer)
}
