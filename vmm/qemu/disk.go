package qemu

import (
	"fmt"
	"maps"
	"slices"

	"github.com/vmlet/vmlet/disk"
	"github.com/vmlet/vmlet/plan"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// diskDefaults are what a disk has that doesn't say.
func diskDefaults() *specv1.Disk { return &specv1.Disk{ErrorPolicy: spec.ErrorStop} }

// disks adds every disk, then the cloud-init seed.
func (b *builder) disks() {
	for i, d := range b.spec.GetDisks() {
		node := b.diskNodes(i, d)
		b.diskDevice(i, d, node)
	}
	if b.spec.GetCloudInit() != nil {
		b.seed()
	}
}

// diskNodes opens a disk's files and returns the name of its topmost node.
func (b *builder) diskNodes(index int, d *specv1.Disk) string {
	field := fmt.Sprintf("disks[%d]", index)
	top := diskID(spec.Slot(b.spec.GetDisks(), index))
	images := []disk.Image{{Path: d.GetPath(), Format: disk.Format(d.GetFormat())}}
	for _, backing := range d.GetBackingFiles() {
		images = append(images, disk.Image{Path: backing.GetPath(), Format: disk.Format(backing.GetFormat())})
	}
	// A node has to be there before one that refers to it: the deepest first.
	below := ""
	for depth := len(images) - 1; depth > 0; depth-- {
		at := fmt.Sprintf("%s.backingFiles[%d].path", field, depth-1)
		file := plan.File{Kind: plan.FilePath, Field: at, Disk: expectation(at, images[depth], images[depth+1:])}
		b.req.Image.Watch(&file, d.GetName(), depth)
		name := backingNode(top, depth-1)
		b.image(name, d, file, below)
		below = name
	}
	at := field + ".path"
	file := plan.File{
		Kind: plan.FilePath, Field: at, Write: !d.GetReadOnly(), Shared: d.GetShareable(), Disk: expectation(at, images[0], images[1:]),
	}
	b.req.Image.Watch(&file, d.GetName(), 0)
	b.image(top, d, file, below)
	return top
}

// image adds the two nodes of one file: how it is read, and what it means.
func (b *builder) image(name string, d *specv1.Disk, file plan.File, below string) {
	cache := cacheOf(d.GetCache())
	file.Path = file.Disk.Path
	file.Direct = cache.direct
	driver := "file"
	if slices.Contains(b.req.BlockDevices, file.Path) {
		driver = "host_device"
	}
	common := func(o options) options {
		o["read-only"] = !file.Write
		o["cache"] = options{"direct": cache.direct, "no-flush": cache.noFlush}
		o["discard"] = "unmap"
		return o
	}
	protocol := options{"driver": driver, "node-name": fileNode(name), "filename": b.fdset(file)}
	if d.GetIo() != "" {
		protocol["aio"] = d.GetIo()
	}
	b.blockdev(common(protocol))
	format := options{"driver": string(file.Disk.Format), "node-name": name, "file": fileNode(name)}
	switch {
	case below != "":
		format["backing"] = below
	case file.Disk.Format == disk.QCOW2:
		format["backing"] = nil // whatever its header names
	}
	b.blockdev(common(format))
}

// The nodes of a disk below the topmost: the format of a backing file, and the file
// of either.
func backingNode(top string, depth int) string { return fmt.Sprintf("%s-backing%d", top, depth) }
func fileNode(name string) string              { return name + "-file" }

// caching is what a cache mode means, as in qemu-system(1) under -drive cache.
type caching struct {
	direct, noFlush, writeCache bool
}

func cacheOf(mode string) caching {
	switch mode {
	case spec.CacheWriteback:
		return caching{writeCache: true}
	case spec.CacheWritethrough:
		return caching{}
	case spec.CacheUnsafe:
		return caching{noFlush: true, writeCache: true}
	}
	return caching{direct: true, writeCache: true}
}

// diskDevice is what the guest sees of a disk.
func (b *builder) diskDevice(index int, d *specv1.Disk, node string) {
	field := fmt.Sprintf("disks[%d].bus", index)
	slot := spec.Slot(b.spec.GetDisks(), index)
	o := options{"id": deviceID(node), "drive": node}
	if d.GetSerial() != "" {
		o["serial"] = d.GetSerial()
	}
	if d.GetBootOrder() != 0 {
		o["bootindex"] = d.GetBootOrder()
	}
	if d.GetShareable() {
		o["share-rw"] = true // QEMU's locks let others write then
	}
	maps.Copy(o, onErrors(d.GetErrorPolicy()))
	if d.GetType() != spec.DiskTypeCDROM {
		o["write-cache"] = onOff(cacheOf(d.GetCache()).writeCache)
	}
	switch d.GetBus() {
	case spec.BusVirtio:
		b.device(field, b.placeDevice(fmt.Sprintf("disks[%d]", index), b.withQueues(b.bus.virtio("blk", o), "num-queues"), slotsDisk(), laterDisks(), slot))
	case spec.BusSCSI:
		o["driver"], o["bus"], o["scsi-id"], o["lun"] = "scsi-"+unit(d), "scsi.0", slot, 0
		b.device(field, o)
	case spec.BusSATA:
		b.sata(field, "ide-"+unit(d), b.sataPort(index), o)
	case spec.BusUSB:
		b.usb(field, index, d, o)
	default:
		b.faults.Add(field, "%.80q is not known", d.GetBus())
	}
}

// onErrors is what failed reads and writes do. What isn't said is QEMU's own: to stop
// where there is no space, else to tell the guest. A read never lacks space.
func onErrors(policy string) options {
	switch policy {
	case "":
		return nil
	case spec.ErrorNoSpace:
		return options{"werror": "enospc"}
	}
	return options{"rerror": policy, "werror": policy}
}

func unit(d *specv1.Disk) string {
	if d.GetType() == spec.DiskTypeCDROM {
		return "cd"
	}
	return "hd"
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// sataPort counts the SATA disks before this one.
func (b *builder) sataPort(index int) int {
	port := 0
	for _, d := range b.spec.GetDisks()[:index] {
		if d.GetBus() == spec.BusSATA {
			port++
		}
	}
	return port
}

func (b *builder) sata(field, driver string, port int, o options) {
	if b.family == familyMicroVM || b.family == familyVirt {
		b.faults.Add(field, "the machine type %s has no SATA: want %s", b.machine.Name, b.otherBuses())
		return
	}
	o["driver"] = driver
	o["bus"] = fmt.Sprintf("%s.%d", b.sataController(port/sataPorts), port%sataPorts)
	b.device(field, o)
}

// sataController is the name of a controller, which its buses begin with: the first is the
// chipset's where there is one, and the others are added with the disks on them.
func (b *builder) sataController(index int) string {
	switch {
	case index > 0:
		return fmt.Sprintf("sata%d", index)
	case b.family == familyQ35:
		return "ide"
	}
	return "sata"
}

func (b *builder) otherBuses() string {
	if b.onMicroVM() {
		return "virtio or scsi"
	}
	return "virtio, scsi or usb"
}

func (b *builder) usb(field string, index int, d *specv1.Disk, o options) {
	if b.onMicroVM() {
		b.faults.Add(field, "the machine type microvm has no USB: want %s", b.otherBuses())
		return
	}
	port := 1
	for _, other := range b.spec.GetDisks()[:index] {
		if other.GetBus() == spec.BusUSB {
			port++
		}
	}
	if most := usbPorts - b.usbInputs(); port > most {
		b.faults.Add(field, "is USB disk number %d: there are %d ports for them", port, most)
		return
	}
	// usb-storage takes hard disks only, so its two halves are put together.
	bot := diskID(spec.Slot(b.spec.GetDisks(), index)) + "-bot"
	b.device(field, options{"driver": "usb-bot", "id": bot, "bus": "usb.0", "port": fmt.Sprint(port)})
	o["driver"], o["bus"], o["scsi-id"], o["lun"] = "scsi-"+unit(d), bot+".0", 0, 0
	b.device(field, o)
}

// seed is the cloud-init image, which the agent made: a read-only virtio disk
// and not a CD-ROM, because kernels made for clouds (Debian's) have no SATA
// driver. cloud-init looks for the volume's label on any block device.
func (b *builder) seed() {
	filename := b.fdset(plan.File{Kind: plan.FileReceived, Field: "cloudInit", Index: b.req.Seed, Keep: "seed"})
	b.rawNode("seed", filename, true)
	o := options{"id": "seed-device", "drive": "seed"}
	b.device("cloudInit", b.bus.place(b.withQueues(b.bus.virtio("blk", o), "num-queues"), slotSeed(), 0))
}
