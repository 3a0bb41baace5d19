package cloudhypervisor

import (
	"cmp"
	"fmt"
	"path"
	"strconv"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/plan"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
)

// diskDefaults are what a disk has that doesn't say.
func diskDefaults() *specv1.Disk { return &specv1.Disk{ErrorPolicy: spec.ErrorReport} }

// disks adds every disk, then the cloud-init seed.
func (b *builder) disks() {
	for i := range b.spec.GetDisks() {
		b.config.Disks = append(b.config.Disks, b.disk(i))
	}
	if b.spec.GetCloudInit() != nil {
		b.seed()
	}
	s := b.spec.GetSystem()
	b.config.Platform = &chapi.Platform{UUID: cmp.Or(s.GetUuid(), b.req.ID), SerialNumber: s.GetSerial(), PCISegments: b.segments()}
}

// refuseDisk finds what a disk can't be.
func (b *builder) refuseDisk(field string, d *specv1.Disk) {
	switch {
	case d.GetType() == spec.DiskTypeCDROM:
		// Its bus follows from that.
		b.lacks(field+".type", "cloud-hypervisor has no CD-ROM: want type disk, bus virtio and readOnly")
	case d.GetBus() != "" && d.GetBus() != spec.BusVirtio:
		b.lacks(field+".bus", "%q: cloud-hypervisor has no other bus than virtio: want that", d.GetBus())
	}
	switch d.GetCache() {
	case "", spec.CacheNone, spec.CacheWriteback:
	default:
		b.lacks(field+".cache", "%q: cloud-hypervisor flushes when the guest says so: want none or writeback", d.GetCache())
	}
	if d.GetIo() != "" {
		b.lacks(field+".io", "%q: cloud-hypervisor takes what the kernel has: leave it out", d.GetIo())
	}
	if policy := d.GetErrorPolicy(); policy != "" && policy != spec.ErrorReport {
		b.lacks(field+".errorPolicy", "%q: cloud-hypervisor tells the guest of errors: want report", policy)
	}
	if d.GetShareable() {
		b.lacks(field+".shareable", "cloud-hypervisor locks each disk as a whole: want vmm qemu, or a disk of this VM's own")
	}
	for i, backing := range d.GetBackingFiles() {
		if path.Dir(path.Clean(backing.GetPath())) == contract.SocketsFolder {
			b.lacks(fmt.Sprintf("%s.backingFiles[%d].path", field, i),
				"%s: another container hands this file out, and cloud-hypervisor opens backing files by their names: want the image on a claim", backing.GetPath())
		}
	}
}

// disk sits where its slot says, which is in its id as well.
func (b *builder) disk(index int) chapi.Disk {
	d, field := b.spec.GetDisks()[index], fmt.Sprintf("disks[%d]", index)
	b.refuseDisk(field, d)
	slot := spec.Slot(b.spec.GetDisks(), index)
	place := placeOfDisk(slot)
	if most := disksOn(b.segments()); slot >= most {
		b.faults.Add(field+".slot", "%d: this VM has places from 0 to %d for disks: leave it out, and one is chosen", slot, most-1)
	}
	images := []disk.Image{{Path: d.GetPath(), Format: format(d.GetFormat())}}
	for _, backing := range d.GetBackingFiles() {
		images = append(images, disk.Image{Path: backing.GetPath(), Format: format(backing.GetFormat())})
	}
	direct := d.GetCache() == "" || d.GetCache() == spec.CacheNone
	file := plan.File{Kind: plan.FilePath, Write: !d.GetReadOnly(), Direct: direct}
	b.req.Image.Watch(&file, d.GetName(), 0)
	path := b.image(field+".path", file, images)
	for i := range d.GetBackingFiles() {
		// Here they are checked. The VMM opens them by itself.
		backing := plan.File{Kind: plan.FilePath, ByName: true}
		b.req.Image.Watch(&backing, d.GetName(), i+1)
		b.image(fmt.Sprintf("%s.backingFiles[%d].path", field, i), backing, images[i+1:])
	}
	place.ID = diskID(slot)
	return chapi.Disk{
		PCI: place, Path: path, ReadOnly: d.GetReadOnly(), Direct: direct, Serial: d.GetSerial(),
		Type: imageType(images[0].Format), BackingFiles: len(images) > 1,
	}
}

func diskID(slot int) string { return wire.DiskPrefix + strconv.Itoa(slot) }

// image returns the path of the first of a chain of images.
func (b *builder) image(field string, file plan.File, chain []disk.Image) string {
	file.Field, file.Path = field, chain[0].Path
	file.Disk = &disk.Expectation{Field: field, Image: chain[0], Backing: chain[1:]}
	if b.attaching {
		b.beyondFence(field, file.Path)
		file.ByName, file.Granted = true, true
		b.file(file)
		return file.Path
	}
	return b.granted(file)
}

func format(name string) disk.Format {
	if name == spec.FormatQCOW2 {
		return disk.QCOW2
	}
	return disk.Raw
}

// imageType is always said: a guest could write another format's header into a raw
// disk.
func imageType(f disk.Format) chapi.ImageType {
	if f == disk.QCOW2 {
		return chapi.ImageQCOW2
	}
	return chapi.ImageRaw
}

// seed is the cloud-init image, which the agent made. cloud-init looks for the
// volume's label on any block device.
func (b *builder) seed() {
	if b.req.Seed < 0 {
		b.faults.Add("cloudInit", "no seed was made for it")
		return
	}
	place := chapi.PCI{ID: "seed", Slot: slot(slotSeed)}
	path := b.copied(plan.File{Kind: plan.FileReceived, Field: "cloudInit", Index: b.req.Seed})
	b.config.Disks = append(b.config.Disks, chapi.Disk{PCI: place, Path: path, ReadOnly: true, Type: chapi.ImageRaw})
}
