package sysfs

import (
	"cmp"
	"slices"
	"strings"
)

// readVFIO reads what of VFIO is loaded and which device nodes it has. The nodes
// are known by their names alone; nothing is opened.
func (d *deviceReader) readVFIO() {
	v := VFIO{Modules: []string{}, Groups: []string{}, Cdevs: []string{}}
	for _, name := range d.entries(d.sys("module")) {
		if isWord(name) && ofVFIO(name) {
			v.Modules = append(v.Modules, name)
		}
	}
	folder := d.roots.DevPath("vfio")
	for _, name := range d.entries(folder) {
		switch {
		case name == "vfio" || name == "devices":
			// The container's node, and the folder of the devices' nodes.
		case groupNumber(name) >= 0:
			v.Groups = append(v.Groups, name)
		default:
			d.note(folder, "%.80q is not the node of a group", name)
		}
	}
	slices.SortFunc(v.Groups, func(a, b string) int {
		return cmp.Or(groupNumber(a)-groupNumber(b), strings.Compare(a, b))
	})
	isDevice := func(name string) bool { return numberedAs(name, "vfio") }
	for _, name := range d.choose(folder+"/devices", isDevice, "devices of VFIO") {
		v.Cdevs = append(v.Cdevs, "devices/"+name)
	}
	slices.SortFunc(v.Cdevs, func(a, b string) int {
		return cmp.Or(len(a)-len(b), strings.Compare(a, b))
	})
	v.IOMMUFD = d.exists(d.roots.DevPath("iommu"))
	v.NoIOMMU = d.flag(d.sys("module/vfio/parameters/enable_unsafe_noiommu_mode"))
	d.h.VFIO = v
}

// groupNumber returns the number in the name of a group's node: "12", or
// "noiommu-12" where there is no IOMMU; -1: it isn't one.
func groupNumber(name string) int {
	if n, ok := decimal(strings.TrimPrefix(name, "noiommu-")); ok {
		return n
	}
	return -1
}

// flag reads a module's parameter of type bool.
func (d *deviceReader) flag(path string) bool {
	text, ok := d.text(path)
	if ok && text != "Y" && text != "N" {
		d.note(path, "%.40q is neither Y nor N", text)
	}
	return text == "Y"
}
