package sysfs

import (
	"slices"
	"strings"
)

// maxBelow is how deep devices are below the PCI function that drives them. A
// disk behind SAS expanders is at host, port, expander, port, expander, port,
// end device, target, unit.
const maxBelow = 12

// made reads what the function's driver made of it: network interfaces and
// block devices, at once or behind virtio, SCSI, ATA, SAS and NVMe.
func (d pciReader) made(f *pciFunction, entries []string) {
	d.below(f, f.dir, entries, maxBelow)
	for _, list := range []*[]string{&f.Interfaces, &f.BlockDevices} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
}

func (d pciReader) below(f *pciFunction, dir string, entries []string, depth int) {
	for _, name := range entries {
		path := dir + "/" + name
		switch {
		case name == "net":
			f.Interfaces = append(f.Interfaces, d.words(path)...)
		case name == "block":
			f.BlockDevices = append(f.BlockDevices, d.words(path)...)
		case isNamespace(name):
			f.BlockDevices = append(f.BlockDevices, namespaceDisk(name))
		case depth > 0 && isHolder(name):
			d.below(f, path, d.entries(path), depth-1)
		}
	}
}

// words lists the names in a folder that can be those of devices.
func (d *deviceReader) words(path string) []string {
	return d.choose(path, isWord, "names of devices")
}

// isHolder reports whether a folder of that name holds devices on the way from
// a controller to its disks and interfaces.
func isHolder(name string) bool {
	if name == "nvme" || isSCSIUnit(name) {
		return true
	}
	for _, prefix := range []string{"virtio", "nvme", "host", "ata"} {
		if numberedAs(name, prefix) {
			return true
		}
	}
	for _, prefix := range []string{"target", "port-", "expander-", "end_device-", "rport-", "session", "vport-"} {
		if digits, ok := strings.CutPrefix(name, prefix); ok && digits != "" && digits[0] >= '0' && digits[0] <= '9' {
			return true
		}
	}
	return false
}

// isSCSIUnit: host, channel, target and unit ("0:0:1:0").
func isSCSIUnit(name string) bool {
	if strings.Count(name, ":") != 3 {
		return false
	}
	parts := strings.Split(name, ":")
	return !slices.ContainsFunc(parts, func(part string) bool { _, ok := decimal(part); return !ok })
}

// isNamespace: "nvme0n1", or "nvme0c1n1", a path to nvme0n1 through controller 1.
func isNamespace(name string) bool {
	digits, ok := strings.CutPrefix(name, "nvme")
	device, namespace, found := strings.Cut(digits, "n")
	system, controller, isPath := strings.Cut(device, "c")
	_, ok1 := decimal(system)
	_, ok2 := decimal(namespace)
	_, ok3 := decimal(controller)
	return ok && found && ok1 && ok2 && (!isPath || ok3)
}

// namespaceDisk returns the name of a namespace's block device: paths to it
// have none that can be opened.
func namespaceDisk(name string) string {
	system, _, isPath := strings.Cut(name, "c")
	if !isPath {
		return name
	}
	return system + name[strings.LastIndexByte(name, 'n'):]
}
