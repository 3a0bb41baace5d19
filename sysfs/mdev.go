package sysfs

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/vmlet/vmlet/sysfs/notation"
)

// mediatedFolder has the mediated devices, mediatorFolder the devices that they
// are slices of, of whatever bus (Documentation/driver-api/vfio-mediated-device.rst).
const (
	mediatedFolder = "bus/mdev/devices"
	mediatorFolder = "class/mdev_bus"
)

// mediator is a device that offers mediated ones.
type mediator struct {
	name, dir string
	node      int
	types     map[string]bool
}

// readMediated reads mediated devices and the types of them.
func (d *deviceReader) readMediated() {
	d.h.MediatedDeviceTypes = []MediatedDeviceType{}
	parents := map[string]*mediator{}
	for _, m := range d.mediators() {
		d.readTypes(m)
		// The folders of its mediated devices are in its own.
		for _, name := range d.entries(m.dir) {
			if isUUID(name) && parents[name] == nil {
				parents[name] = m
			}
		}
	}
	slices.SortFunc(d.h.MediatedDeviceTypes, func(a, b MediatedDeviceType) int {
		return cmp.Or(strings.Compare(a.ID, b.ID), notation.CompareDevices(a.Parent, b.Parent))
	})
	root := d.sys(mediatedFolder)
	d.h.MediatedDevices = []MediatedDevice{}
	for _, name := range d.choose(root, isUUID, "UUIDs") {
		d.readMediatedDevice(root+"/"+name, name, parents[name])
	}
}

// mediators finds the devices that offer mediated ones, PCI functions first.
func (d *deviceReader) mediators() []*mediator {
	var found []*mediator
	known := map[string]bool{}
	for _, f := range d.order {
		if f.mediates {
			known[f.Address] = true
			found = append(found, &mediator{name: f.Address, dir: f.dir, node: f.Node, types: map[string]bool{}})
		}
	}
	root := d.sys(mediatorFolder)
	for _, name := range d.choose(root, isWord, "names of devices") {
		if known[name] {
			continue
		}
		dir := root + "/" + name
		if _, ok := notation.FolderPCIAddress(name); ok {
			d.note(dir, "there is no such device with mediated types in %s", d.sys(pciFolder))
			continue
		}
		if len(d.present(dir)) == 0 {
			continue
		}
		found = append(found, &mediator{name: name, dir: dir, node: d.node(dir + "/numa_node"), types: map[string]bool{}})
	}
	return found
}

// readTypes reads what a device offers.
func (d *deviceReader) readTypes(m *mediator) {
	root := m.dir + "/mdev_supported_types"
	for _, id := range d.words(root) {
		if len(d.h.MediatedDeviceTypes) == maxDevices {
			d.note(root, "there are more than %d types; the rest is left out", maxDevices)
			return
		}
		dir := root + "/" + id
		entries := d.present(dir)
		if len(entries) == 0 {
			continue
		}
		m.types[id] = true
		kind := MediatedDeviceType{ID: id, Parent: m.name}
		if has(entries, "name") {
			kind.Name = d.saying(dir + "/name")
		}
		if has(entries, "description") {
			kind.Description = d.saying(dir + "/description")
		}
		if !d.missing(dir, "device_api", entries) {
			kind.DeviceAPI = d.saying(dir + "/device_api")
		}
		if !d.missing(dir, "available_instances", entries) {
			kind.Available = d.within(dir+"/available_instances", 0, math.MaxInt32, 0)
		}
		d.h.MediatedDeviceTypes = append(d.h.MediatedDeviceTypes, kind)
	}
}

func (d *deviceReader) readMediatedDevice(dir, name string, parent *mediator) {
	entries := d.present(dir)
	if len(entries) == 0 {
		return
	}
	device := MediatedDevice{UUID: name, IOMMUGroup: -1, Node: -1}
	if has(entries, "iommu_group") {
		device.IOMMUGroup = d.linkGroup(dir + "/iommu_group")
	}
	if has(entries, "vfio-dev") {
		device.VFIODevice = d.vfioDevice(dir)
	}
	if parent == nil {
		d.note(dir, "no device is known that it is a slice of, so its type is not known either")
	} else {
		device.Parent, device.Node = parent.name, parent.node
		if !d.missing(dir, "mdev_type", entries) {
			device.Type = d.linkWord(dir + "/mdev_type")
		}
	}
	if device.Type != "" && !parent.types[device.Type] {
		d.note(dir+"/mdev_type", "%s has no type %s", parent.name, device.Type)
		device.Type = ""
	}
	d.h.MediatedDevices = append(d.h.MediatedDevices, device)
}

// isUUID reports whether a name is a UUID as the kernel writes it: in lower
// case, with hyphens.
func isUUID(name string) bool {
	if len(name) != 36 {
		return false
	}
	for i, c := range []byte(name) {
		hyphen := i == 8 || i == 13 || i == 18 || i == 23
		if hyphen != (c == '-') || (!hyphen && !strings.ContainsRune("0123456789abcdef", rune(c))) {
			return false
		}
	}
	return true
}
