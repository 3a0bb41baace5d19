package chapi

// VMConfig is a VM's configuration, for vm.create and from vm.info, and what a
// snapshot's config.json holds. A field left at its zero value is left out, and the
// VMM then takes its default; where that is not zero it is named. Sizes are in bytes.
type VMConfig struct {
	CPUs     *CPUs     `json:"cpus,omitempty"`   // default: one vCPU
	Memory   *Memory   `json:"memory,omitempty"` // default: 512 MiB
	Payload  *Payload  `json:"payload,omitempty"`
	Disks    []Disk    `json:"disks,omitempty"`
	Nets     []Net     `json:"net,omitempty"`
	RNG      *RNG      `json:"rng,omitempty"` // default: one from /dev/urandom
	Balloon  *Balloon  `json:"balloon,omitempty"`
	Serial   *Console  `json:"serial,omitempty"`  // default: ConsoleNull
	Console  *Console  `json:"console,omitempty"` // virtio-console; default: ConsoleTTY
	Devices  []Device  `json:"devices,omitempty"`
	Vsock    *Vsock    `json:"vsock,omitempty"`
	PVPanic  bool      `json:"pvpanic,omitempty"` // lets the guest tell of its panic: an event
	NUMA     []NUMA    `json:"numa,omitempty"`
	Watchdog bool      `json:"watchdog,omitempty"` // resets a guest that has fed it and stopped
	Platform *Platform `json:"platform,omitempty"`
	TPM      *TPM      `json:"tpm,omitempty"`

	// Landlock confines the VMM, from vm.create or vm.restore on, to the files that
	// the configuration names and to LandlockRules, which are for what comes later:
	// disks to be plugged in, folders of snapshots. It can't be widened afterwards.
	Landlock      bool           `json:"landlock_enable,omitempty"`
	LandlockRules []LandlockRule `json:"landlock_rules,omitempty"`

	Extra Extra `json:"-"`
}

// CPUs are the vCPUs.
type CPUs struct {
	// Boot is how many there are at first, Max how many there may be. Both must be
	// set, Max not below Boot.
	Boot uint32 `json:"boot_vcpus"`
	Max  uint32 `json:"max_vcpus"`
	// Topology must multiply to Max.
	Topology *CPUTopology `json:"topology,omitempty"`
	// HyperV shows Hyper-V's enlightenments to a Windows guest (KVM only).
	HyperV bool `json:"kvm_hyperv,omitempty"`
	// MaxPhysBits bounds the width of guest-physical addresses; default 46.
	MaxPhysBits uint8         `json:"max_phys_bits,omitempty"`
	Affinity    []CPUAffinity `json:"affinity,omitempty"`
	Features    *CPUFeatures  `json:"features,omitempty"`
	// Nested shows the host's virtualization to the guest; default true.
	Nested *bool `json:"nested,omitempty"`
	Extra  Extra `json:"-"`
}

// CPUTopology is what the guest sees; no part may be zero. Threads are at most two
// on x86-64, and dies one on arm64.
type CPUTopology struct {
	ThreadsPerCore uint16 `json:"threads_per_core"`
	CoresPerDie    uint16 `json:"cores_per_die"`
	DiesPerPackage uint16 `json:"dies_per_package"`
	Packages       uint16 `json:"packages"`
	Extra          Extra  `json:"-"`
}

// CPUAffinity pins a vCPU's thread to CPUs of the host.
type CPUAffinity struct {
	VCPU  uint32 `json:"vcpu"`
	CPUs  []int  `json:"host_cpus"`
	Extra Extra  `json:"-"`
}

// CPUFeatures are those that must be asked for.
type CPUFeatures struct {
	AMX   bool  `json:"amx,omitempty"` // x86-64
	Extra Extra `json:"-"`
}

// HotplugMethod is how memory is added to a running VM.
type HotplugMethod string

// The methods; ACPI is the default and isn't for zones.
const (
	HotplugACPI      HotplugMethod = "Acpi"
	HotplugVirtioMem HotplugMethod = "VirtioMem"
)

// Memory is the guest's RAM: of one size, or Size 0 and zones.
type Memory struct {
	Size          uint64        `json:"size"`
	Mergeable     bool          `json:"mergeable,omitempty"` // by KSM; not with Shared
	HotplugMethod HotplugMethod `json:"hotplug_method,omitempty"`
	HotplugSize   uint64        `json:"hotplug_size,omitempty"` // what may be added
	Shared        bool          `json:"shared,omitempty"`
	HugePages     bool          `json:"hugepages,omitempty"`
	HugePageSize  uint64        `json:"hugepage_size,omitempty"`
	Prefault      bool          `json:"prefault,omitempty"`
	THP           *bool         `json:"thp,omitempty"` // default true
	Zones         []MemoryZone  `json:"zones,omitempty"`
	Extra         Extra         `json:"-"`
}

// MemoryZone is a part of the RAM with a place of its own.
type MemoryZone struct {
	ID   string `json:"id"`
	Size uint64 `json:"size"`
	// File is a regular file with the zone's content, at least as long as the zone:
	// on a tmpfs, on hugetlbfs, or a memory image. It is no folder. If Shared it is
	// opened for writing and left out of snapshots as long as it is linked; else it
	// is opened for reading only and mapped privately.
	File   string `json:"file,omitempty"`
	Shared bool   `json:"shared,omitempty"`
	// HugePages without a File come from the kernel's pool.
	HugePages    bool   `json:"hugepages,omitempty"`
	HugePageSize uint64 `json:"hugepage_size,omitempty"`
	// HostNode is the NUMA node of the host that the pages come from. A zone that
	// is Shared and has a File can have none: its pages are placed by anyone who
	// touches them first.
	HostNode    *uint32 `json:"host_numa_node,omitempty"`
	HotplugSize uint64  `json:"hotplug_size,omitempty"` // what virtio-mem may add
	Prefault    bool    `json:"prefault,omitempty"`
	Mergeable   bool    `json:"mergeable,omitempty"`
	Extra       Extra   `json:"-"`
}

// Payload is what the VM boots: a firmware, or a kernel (bzImage or an ELF file
// with a PVH entry on x86-64) with its initramfs and command line.
type Payload struct {
	Firmware  string `json:"firmware,omitempty"`
	Kernel    string `json:"kernel,omitempty"`
	Cmdline   string `json:"cmdline,omitempty"`
	Initramfs string `json:"initramfs,omitempty"`
	Extra     Extra  `json:"-"`
}

// NUMA is a NUMA node of the guest.
type NUMA struct {
	ID          uint32         `json:"guest_numa_id"`
	CPUs        []uint32       `json:"cpus,omitempty"`
	Distances   []NUMADistance `json:"distances,omitempty"`
	MemoryZones []string       `json:"memory_zones,omitempty"` // ids; a zone is in one node
	PCISegments []uint16       `json:"pci_segments,omitempty"`
	Extra       Extra          `json:"-"`
}

// NUMADistance is how far another node is, 10 being here.
type NUMADistance struct {
	To       uint32 `json:"destination"`
	Distance uint8  `json:"distance"`
	Extra    Extra  `json:"-"`
}

// Platform is what the machine says of itself, and how devices are handed over.
// The names of the serial number and the UUID are those that every version reads;
// v53 answers with system_serial_number and system_uuid, which are then in Extra.
type Platform struct {
	PCISegments  uint16   `json:"num_pci_segments,omitempty"` // default 1
	SerialNumber string   `json:"serial_number,omitempty"`
	UUID         string   `json:"uuid,omitempty"`
	OEMStrings   []string `json:"oem_strings,omitempty"`
	// IOMMUFD hands devices over by /dev/iommu in place of a VFIO container.
	IOMMUFD bool  `json:"iommufd,omitempty"`
	Extra   Extra `json:"-"`
}

// LandlockRule allows what is at and beneath a path, which must exist. Access is
// "r" (which allows to run it, too), "w" or "rw".
type LandlockRule struct {
	Path   string `json:"path"`
	Access string `json:"access"`
	Extra  Extra  `json:"-"`
}
