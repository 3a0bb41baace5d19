package sysfs

// pciClassName returns a few words for a 24-bit class code, by base class and
// subclass or by the base class alone; empty: not known. The numbers are those
// of the PCI-SIG's "PCI Code and ID Assignment Specification".
func pciClassName(class uint32) string {
	// 0 is also what is not known.
	if class == 0 {
		return ""
	}
	// The programming interface tells NVM Express from other flash.
	if class == 0x010802 {
		return "NVMe controller"
	}
	if name := pciSubclassName(uint16(class >> 8)); name != "" {
		return name
	}
	return pciBaseClassName(uint8(class >> 16))
}

func pciSubclassName(subclass uint16) string {
	switch subclass {
	case 0x0001:
		return "VGA device without a class"
	case 0x0100:
		return "SCSI controller"
	case 0x0101:
		return "IDE controller"
	case 0x0104:
		return "RAID controller"
	case 0x0105:
		return "ATA controller"
	case 0x0106:
		return "SATA controller"
	case 0x0107:
		return "SAS controller"
	case 0x0108:
		return "non-volatile memory controller"
	case 0x0200:
		return "Ethernet controller"
	case 0x0207:
		return "InfiniBand controller"
	case 0x0208:
		return "fabric controller"
	case 0x0300:
		return "VGA controller"
	case 0x0302:
		return "3D controller"
	case 0x0400:
		return "video device"
	case 0x0401, 0x0403:
		return "audio device"
	case 0x0500:
		return "RAM"
	case 0x0502:
		return "CXL memory"
	case 0x0600:
		return "host bridge"
	case 0x0601:
		return "ISA bridge"
	case 0x0604:
		return "PCI bridge"
	case 0x0607:
		return "CardBus bridge"
	case 0x0609:
		return "semi-transparent PCI bridge"
	default:
		return pciOddSubclassName(subclass)
	}
}

// pciOddSubclassName has those that are a small part of a chipset or rare.
func pciOddSubclassName(subclass uint16) string {
	switch subclass {
	case 0x0700:
		return "serial port"
	case 0x0703:
		return "modem"
	case 0x0780:
		return "communication controller"
	case 0x0800:
		return "interrupt controller"
	case 0x0801:
		return "DMA controller"
	case 0x0802:
		return "timer"
	case 0x0805:
		return "SD host controller"
	case 0x0806:
		return "IOMMU"
	case 0x0807:
		return "root complex event collector"
	case 0x0c03:
		return "USB controller"
	case 0x0c04:
		return "Fibre Channel controller"
	case 0x0c05:
		return "SMBus controller"
	case 0x0c06:
		return "InfiniBand host adapter"
	case 0x0c07:
		return "IPMI interface"
	case 0x0d11:
		return "Bluetooth controller"
	case 0x0280:
		return "other network controller"
	case 0x1000:
		return "network encryption accelerator"
	case 0x1101:
		return "performance counters"
	}
	return ""
}

func pciBaseClassName(base uint8) string {
	switch base {
	case 0x00:
		return "device of no class"
	case 0x01:
		return "storage controller"
	case 0x02:
		return "network controller"
	case 0x03:
		return "display controller"
	case 0x04:
		return "multimedia device"
	case 0x05:
		return "memory controller"
	case 0x06:
		return "bridge"
	case 0x07:
		return "communication controller"
	case 0x08:
		return "system peripheral"
	case 0x09:
		return "input device"
	case 0x0a:
		return "docking station"
	case 0x0b:
		return "processor"
	case 0x0c:
		return "serial bus controller"
	case 0x0d:
		return "wireless controller"
	case 0x0e:
		return "intelligent controller"
	case 0x0f:
		return "satellite controller"
	case 0x10:
		return "encryption controller"
	case 0x11:
		return "signal processing controller"
	case 0x12:
		return "processing accelerator"
	case 0x13:
		return "instrumentation"
	case 0x40:
		return "coprocessor"
	case 0xff:
		return "device of a class of its own"
	}
	return ""
}
