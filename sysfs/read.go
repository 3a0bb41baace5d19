package sysfs

import (
	"errors"
	"io/fs"
)

// Read reads the machine from the files below the roots. It never fails: what
// could not be read is missing, and Host.Notes says why.
func Read(roots Roots) *Host {
	r := &reader{roots: roots}
	defer r.close()
	h := empty()
	r.checkRoots()
	processor, cpus, memory, topology := processorReader{r}, cpuReader{r}, memoryReader{r}, topologyReader{r}
	processor.kernel(h)
	processor.processor(h)
	cpus.cpus(h)
	memory.nodes(h)
	topology.topology(h)
	topology.caches(h)
	cpus.cpuSets(h)
	memory.memory(h)
	processor.virtualization(h)
	readDevices(r, h)
	h.Notes = append([]Note{}, r.notes...)
	return h
}

// empty has no nil array: what isn't there is an empty list in JSON.
func empty() *Host {
	return &Host{
		PCIDevices: []PCIDevice{}, IOMMUGroups: []IOMMUGroup{}, USBDevices: []USBDevice{},
		MediatedDevices: []MediatedDevice{}, MediatedDeviceTypes: []MediatedDeviceType{},
		VFIO: VFIO{Modules: []string{}, Groups: []string{}, Cdevs: []string{}},
	}
}

// checkRoots notes a root that can't be opened: everything below it will be
// missing without a word. A machine needs no /dev, unless it was asked for.
func (r *reader) checkRoots() {
	r.openTrees()
	for _, t := range r.trees {
		if t.err == nil || (r.roots.Dev == "" && t.root == r.roots.DevPath()) {
			continue
		}
		if errors.Is(t.err, fs.ErrNotExist) {
			r.note(t.root, "there is no such folder, so nothing of it is known")
			continue
		}
		r.note(t.root, "nothing of it is known: %v", t.err)
	}
}

// sys returns the path of a file below /sys that is named in one piece, which
// costs less than joining elements: it is done for every file of every CPU.
func (r *reader) sys(name string) string { return r.roots.SysPath() + "/" + name }

// proc is the same for /proc.
func (r *reader) proc(name string) string { return r.roots.ProcPath() + "/" + name }
