package hypervisor

// ResourceFacts is what limits depend on.
type ResourceFacts struct {
	// MemoryBytes is the guest's RAM, OverheadBytes what its processes take beside it.
	MemoryBytes, OverheadBytes uint64
	// VFIODevices is how many host devices the guest is given.
	VFIODevices int
}

// Resources are the limits that a VM's processes need.
type Resources struct {
	// Memlock is RLIMIT_MEMLOCK in bytes; 0: whatever the limit is will do.
	Memlock uint64
	// Reasons say why, a sentence for each feature that asks for it.
	Reasons []string
}

// vfioMMIO is added for devices that DMA to one another: their memory windows (BARs) are mapped into the IOMMU as guest RAM is. A
// GiB is what is customary for it; windows beyond that are rare and come with a limit set by hand.
const vfioMMIO = 1 << 30

// CommonResources is what the Linux kernel wants, under every hypervisor.
//
// VFIO pins all of a guest's RAM and counts it against RLIMIT_MEMLOCK, once for each IOMMU container or iommufd address space;
// vmlet's VMs have one, however many devices they share it among (vfio_pin_pages_remote in drivers/vfio/vfio_iommu_type1.c). What
// the VMM takes beside RAM is counted to be on the safe side. No VMM of vmlet has CAP_IPC_LOCK, with which no limit would hold.
func CommonResources(f ResourceFacts) Resources {
	if f.VFIODevices == 0 {
		return Resources{}
	}
	return Resources{
		Memlock: saturate(saturate(f.MemoryBytes, f.OverheadBytes), vfioMMIO),
		Reasons: []string{"VFIO pins the guest's memory, and maps the devices' own"},
	}
}

// saturate adds; what doesn't fit is RLIM_INFINITY.
func saturate(a, b uint64) uint64 {
	if sum := a + b; sum >= a {
		return sum
	}
	return ^uint64(0)
}
