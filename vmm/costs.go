package vmm

// MemoryCoster is a VMM whose own memory was measured.
type MemoryCoster interface {
	MemoryCosts() MemoryCosts
}

// MemoryCosts is the memory that a VMM takes beside a guest's RAM, in bytes: private memory
// and the pages of its program and libraries, which a pod's image has for itself. What the
// kernel keeps for the hypervisor is not in it.
type MemoryCosts struct {
	// Measured: the figures were measured; else they are careful guesses, and Note says of
	// what kind.
	Measured bool
	Note     string
	// Base is for a VM without devices and virtual CPUs, the others for one more of each;
	// Device is for one that is none of the others, USB for the controller.
	Base, VCPU, Disk, Network, Device uint64
	Video, USB                        uint64
	// Display is what a client of the display takes, where there is a video device.
	Display uint64
}

// MemoryCostsOf are those that a VMM says of itself; of one that says none they are a guess
// on the safe side, above those of all that were measured.
func MemoryCostsOf(p Planner) MemoryCosts {
	if c, ok := p.(MemoryCoster); ok {
		return c.MemoryCosts()
	}
	const mib = 1 << 20
	return MemoryCosts{Note: "not measured", Base: 64 * mib, VCPU: mib / 2, Disk: mib, Network: mib, Device: mib / 2, Video: 32 * mib, USB: 8 * mib, Display: 16 * mib}
}

// ProgramNamer is a VMM that is known by the name of its program.
type ProgramNamer interface {
	// ProgramNames are patterns of path.Match for the file's name, without its folder:
	// "qemu-system-*".
	ProgramNames() []string
}
