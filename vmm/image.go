package vmm

import (
	"github.com/vmlet/vmlet/vmm/disk"
	"github.com/vmlet/vmlet/vmm/memory"
	"github.com/vmlet/vmlet/vmm/plan"
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

// DiskIdentity is what a disk was when the image was saved, and must still be; nil: it
// may be any.
func (i *Image) DiskIdentity(name string) *disk.Identity {
	if i == nil || i.Manifest == nil || i.AllowChangedDisks {
		return nil
	}
	for _, saved := range i.Manifest.Disks {
		if saved.Name == name {
			return &disk.Identity{
				Device: saved.Device, Inode: saved.Inode, Size: int64(saved.Size),
				ModTimeNs: saved.ModTime, HeaderSum: saved.HeaderSum,
			}
		}
	}
	return nil
}
