package draw

// vendorName names the makers of what servers and laptops mostly hold, by their
// PCI vendor id (assigned by the PCI-SIG); empty: any other.
func vendorName(id uint16) string {
	switch id {
	case 0x1000, 0x14e4:
		return "Broadcom"
	case 0x1002, 0x1022:
		return "AMD"
	case 0x1014:
		return "IBM"
	case 0x10de:
		return "NVIDIA"
	case 0x10ec:
		return "Realtek"
	case 0x1077:
		return "QLogic"
	case 0x1137:
		return "Cisco"
	case 0x1425:
		return "Chelsio"
	case 0x144d:
		return "Samsung"
	case 0x1344:
		return "Micron"
	case 0x1414:
		return "Microsoft"
	case 0x15ad:
		return "VMware"
	case 0x15b3:
		return "Mellanox"
	case 0x15b7:
		return "SanDisk"
	case 0x177d:
		return "Marvell"
	case 0x19e5:
		return "Huawei"
	case 0x1af4, 0x1b36:
		return "Red Hat"
	case 0x1c5c:
		return "SK hynix"
	case 0x1d0f:
		return "Amazon"
	case 0x1e0f:
		return "Kioxia"
	case 0x1ed5:
		return "Moore Threads"
	case 0x1ae0:
		return "Google"
	case 0x8086:
		return "Intel"
	}
	return ""
}
