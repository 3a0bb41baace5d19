package vmm

// VendorName is libvirt's word for a processor's maker, as CPUID says it; empty:
// libvirt has none.
func VendorName(cpuid string) string {
	switch cpuid {
	case "GenuineIntel":
		return "Intel"
	case "AuthenticAMD":
		return "AMD"
	case "HygonGenuine":
		return "Hygon"
	}
	return ""
}
