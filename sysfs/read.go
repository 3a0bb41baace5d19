package sysfs

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

// readDevices reads what depends on the buses. It wants h.CPUs and h.Nodes to be
// known: what a device says of them is kept only if it refers to one of them.
func readDevices(r *reader, h *Host) {
	d := &deviceReader{
		reader: r, h: h, entriesLeft: maxDeviceEntries,
		pci: map[PCIAddress]*pciFunction{}, groups: map[int]bool{}, near: map[string]IDList{},
	}
	pciReader{d}.readPCI()
	d.readIOMMUGroups()
	pciReader{d}.finishPCI()
	d.readMediated()
	d.readUSB()
	d.readVFIO()
}
