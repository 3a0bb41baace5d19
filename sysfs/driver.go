package sysfs

import "strings"

// driver reads who drives a device, the name of its character device of VFIO,
// and whether its driver leaves the device's DMA to VFIO.
func (d *deviceReader) driver(dir string, entries []string) (name, vfioDevice string, leaves bool) {
	bound := has(entries, "driver")
	if bound {
		name = d.linkWord(dir + "/driver")
	}
	if has(entries, "vfio-dev") {
		vfioDevice = d.vfioDevice(dir)
	}
	return name, vfioDevice, !bound || leavesDMA(name, vfioDevice)
}

// leavesDMA reports whether a device with this driver leaves its IOMMU group to
// VFIO. Since Linux 5.19 the kernel asks the driver alone: those that say
// driver_managed_dma leave it (drivers/base, iommu_device_use_default_domain),
// and these are VFIO's own, pci-stub and pcieport, which drives PCI Express
// ports. A bridge has no other rights: shpchp on a conventional bridge keeps
// the whole group from being given to a guest, as would a host bridge's driver;
// mostly these have none. Before 5.19 any driver of a bridge was let pass
// (vfio_dev_viable of drivers/vfio/vfio.c looked at the header type); what is
// said of such a kernel's groups is then too strict.
//
// A driver of VFIO is known by the device of VFIO that it made (Linux 6.1 and
// later), or by the word in its name: vfio-pci, mlx5_vfio_pci, vfio_ap.
func leavesDMA(driver, vfioDevice string) bool {
	return vfioDevice != "" || driver == "pci-stub" || driver == "pcieport" || ofVFIO(driver)
}

// ofVFIO reports whether "vfio" is one of the words of a module's or a driver's name.
func ofVFIO(name string) bool {
	words := strings.FieldsFunc(name, func(c rune) bool { return c == '-' || c == '_' })
	for _, word := range words {
		if word == "vfio" {
			return true
		}
	}
	return false
}

// vfioDevice returns the name of a device's character device ("vfio0"), which
// the kernel has since 6.1.
func (d *deviceReader) vfioDevice(dir string) string {
	isDevice := func(name string) bool { return numberedAs(name, "vfio") }
	names := d.choose(dir+"/vfio-dev", isDevice, "devices of VFIO")
	if len(names) > 1 {
		d.note(dir+"/vfio-dev", "there are %d devices; one has at most one", len(names))
	}
	if len(names) != 1 {
		return ""
	}
	return names[0]
}
