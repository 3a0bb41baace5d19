package sysfs

// Host is what the files of /sys and /proc say of a machine. Its JSON is what
// `vmlet topology -o json` prints: flat arrays whose ids refer to one another.
// Every array is sorted by id and never nil.
type Host struct {
	// Architecture is Go's name ("amd64", "arm64", "s390x", "ppc64le"); empty:
	// the files don't say.
	Architecture string `json:"architecture,omitempty"`
	Kernel       Kernel `json:"kernel"`
	// Processor is what all CPUs have in common.
	Processor Processor `json:"processor"`

	Packages []Package `json:"packages"`
	Dies     []Die     `json:"dies"`
	Clusters []Cluster `json:"clusters"`
	Cores    []Core    `json:"cores"`
	CPUs     []CPU     `json:"cpus"`
	Nodes    []Node    `json:"nodes"`
	Caches   []Cache   `json:"caches"`
	// CPUSets are those that the kernel and this process's cgroup allow.
	CPUSets CPUSets `json:"cpuSets"`

	Memory Memory `json:"memory"`
	// HugePages are the machine's pools, by page size.
	HugePages []HugePages `json:"hugePages"`

	PCIDevices  []PCIDevice  `json:"pciDevices"`
	IOMMUGroups []IOMMUGroup `json:"iommuGroups"`
	// MediatedDevices (mdev) and the types that their parents offer.
	MediatedDevices     []MediatedDevice     `json:"mediatedDevices"`
	MediatedDeviceTypes []MediatedDeviceType `json:"mediatedDeviceTypes"`
	USBDevices          []USBDevice          `json:"usbDevices"`
	VFIO                VFIO                 `json:"vfio"`

	Virtualization Virtualization `json:"virtualization"`
	// Notes say which facts are missing because a file could not be read or
	// made no sense. Files that simply aren't there on such a machine are not noted.
	Notes []Note `json:"notes"`
}

// Note is why a fact is missing.
type Note struct {
	// Path of the file or folder, under the root it was read from.
	Path string `json:"path"`
	// Message in words: "permission denied", "\"abc\" is not a number".
	Message string `json:"message"`
}

// Kernel is the Linux that runs.
type Kernel struct {
	Release string `json:"release,omitempty"`
	Version string `json:"version,omitempty"`
	// Clocksource in use, and those available.
	Clocksource  string   `json:"clocksource,omitempty"`
	Clocksources []string `json:"clocksources,omitempty"`
	// RealtimeRuntime is kernel.sched_rt_runtime_us, in microseconds; -1: not
	// limited. Nil: unknown.
	RealtimeRuntime *int64 `json:"realtimeRuntime,omitempty"`
}

// Processor is what /proc/cpuinfo says of the first CPU.
type Processor struct {
	// Vendor as the processor says it: "GenuineIntel", "AuthenticAMD"; on arm64
	// the implementer's number ("0x41").
	Vendor    string `json:"vendor,omitempty"`
	ModelName string `json:"modelName,omitempty"`
	// Family, Model and Stepping of x86. On arm64 the architecture, the part and
	// the variant * 16 + revision, as MIDR_EL1 has them; on s390x the model is the
	// machine's type.
	Family    int    `json:"family,omitempty"`
	Model     int    `json:"model,omitempty"`
	Stepping  int    `json:"stepping,omitempty"`
	Microcode string `json:"microcode,omitempty"`
	// Flags as Linux names them; on arm64 its "Features". Sorted.
	Flags []string `json:"flags,omitempty"`
	// TSCFrequency in Hz, from the files that tell; 0: unknown.
	TSCFrequency uint64 `json:"tscFrequency,omitempty"`
	// Vulnerabilities by their file's name, as the kernel words them.
	Vulnerabilities map[string]string `json:"vulnerabilities,omitempty"`
}

// Package is a processor in its socket.
type Package struct {
	// ID is the kernel's physical_package_id; where that is -1 or another
	// package's too, the lowest number that is free.
	ID    int    `json:"id"`
	CPUs  IDList `json:"cpus"`
	Nodes IDList `json:"nodes"`
}

// Die is a chip in a package.
type Die struct {
	// ID counts from 0 over the machine; KernelID is die_id, unique in its package.
	ID       int    `json:"id"`
	KernelID int    `json:"kernelId"`
	Package  int    `json:"package"`
	CPUs     IDList `json:"cpus"`
}

// Cluster is a group of cores within a die that share something (cluster_id):
// an L2 cache, an L3 tag. Where each core would be a cluster of its own, there
// are none.
type Cluster struct {
	ID       int    `json:"id"`
	KernelID int    `json:"kernelId"`
	Package  int    `json:"package"`
	Die      int    `json:"die"`
	CPUs     IDList `json:"cpus"`
}

// Core is a processor core. References that a machine doesn't have are -1.
type Core struct {
	// ID counts from 0 over the machine; KernelID is core_id, unique only in
	// its package, or even only in its die.
	ID       int `json:"id"`
	KernelID int `json:"kernelId"`
	Package  int `json:"package"`
	Die      int `json:"die"`
	Cluster  int `json:"cluster"`
	// Kind of a hybrid processor: "performance", "efficiency"; else empty.
	Kind string `json:"kind,omitempty"`
	CPUs IDList `json:"cpus"`
}

// CPU is what the kernel schedules on: a thread of a core. References that are
// unknown are -1: an offline CPU has no core, package and die.
type CPU struct {
	// ID is the kernel's number.
	ID     int  `json:"id"`
	Online bool `json:"online"`
	// Isolated from the scheduler (isolcpus=), Allowed by this process's cgroup.
	Isolated bool `json:"isolated"`
	Allowed  bool `json:"allowed"`
	Core     int  `json:"core"`
	// Thread is the place among its core's CPUs.
	Thread  int `json:"thread"`
	Cluster int `json:"cluster"`
	Die     int `json:"die"`
	Package int `json:"package"`
	Node    int `json:"node"`
	// Kind of a hybrid processor's core: "performance", "efficiency".
	Kind string `json:"kind,omitempty"`
	// Capacity is cpu_capacity (arm64, 1024 is the fastest); 0: unknown.
	Capacity int `json:"capacity,omitempty"`
	// MaxFrequency in Hz; 0: unknown.
	MaxFrequency uint64 `json:"maxFrequency,omitempty"`
}

// Node is a NUMA node.
type Node struct {
	ID     int  `json:"id"`
	Online bool `json:"online"`
	// Allowed by this process's cgroup.
	Allowed bool `json:"allowed"`
	// CPUs of the node, offline ones too where the kernel says; empty: CPU-less.
	CPUs IDList `json:"cpus"`
	// Memory in bytes: all, and what is free; both 0: memory-less, or unknown,
	// which Host.Notes then say.
	Memory     uint64 `json:"memory"`
	MemoryFree uint64 `json:"memoryFree"`
	// Distances to the nodes, in the order of Host.Nodes' online ones, as the
	// firmware's SLIT has them: 10 is the node itself.
	Distances []int       `json:"distances"`
	HugePages []HugePages `json:"hugePages"`
}

// Cache is a cache and who shares it.
type Cache struct {
	// ID counts from 0 over the machine; KernelID is what the file id says,
	// unique among the caches of one level and type; -1: it doesn't.
	ID       int `json:"id"`
	KernelID int `json:"kernelId"`
	Level    int `json:"level"`
	// Type is "data", "instruction" or "unified".
	Type string `json:"type"`
	// Size and line size in bytes; 0: unknown.
	Size     uint64 `json:"size"`
	LineSize int    `json:"lineSize,omitempty"`
	Ways     int    `json:"ways,omitempty"`
	Sets     int    `json:"sets,omitempty"`
	CPUs     IDList `json:"cpus"`
}

// CPUSets are sets of CPUs and nodes by the kernel's word for them.
type CPUSets struct {
	Possible IDList `json:"possible"`
	Present  IDList `json:"present"`
	Online   IDList `json:"online"`
	Offline  IDList `json:"offline"`
	Isolated IDList `json:"isolated"`
	// NoHZFull are without a tick (nohz_full=).
	NoHZFull IDList `json:"nohzFull"`
	// AllowedCPUs and AllowedNodes are those of this process's cgroup
	// (Cpus_allowed_list and Mems_allowed_list of /proc/self/status).
	AllowedCPUs  IDList `json:"allowedCpus"`
	AllowedNodes IDList `json:"allowedNodes"`
	// PossibleNodes are those that may ever be there; Host.Nodes has those that are.
	PossibleNodes IDList `json:"possibleNodes"`
}

// Memory of the machine, in bytes. 0: unknown, as Available is by kernels before
// 3.14; a machine may have no swap.
type Memory struct {
	Total     uint64 `json:"total"`
	Available uint64 `json:"available"`
	SwapTotal uint64 `json:"swapTotal"`
	SwapFree  uint64 `json:"swapFree"`
	// TransparentHugePages is "always", "madvise" or "never"; so is that of
	// tmpfs (shmem_enabled), with its own words.
	TransparentHugePages      string `json:"transparentHugePages,omitempty"`
	TransparentHugePagesShmem string `json:"transparentHugePagesShmem,omitempty"`
	KSM                       *KSM   `json:"ksm,omitempty"`
}

// KSM is kernel samepage merging.
type KSM struct {
	// Run is 0 (stopped), 1 (running) or 2 (stopped, all unmerged).
	Run int `json:"run"`
	// PagesShared are pages in use for PagesSharing more places.
	PagesShared  uint64 `json:"pagesShared"`
	PagesSharing uint64 `json:"pagesSharing"`
	// MergeAcrossNodes: pages of different nodes are merged too.
	MergeAcrossNodes bool `json:"mergeAcrossNodes"`
}

// HugePages is a pool of pages of one size, in pages.
type HugePages struct {
	// PageSize in bytes.
	PageSize uint64 `json:"pageSize"`
	Total    uint64 `json:"total"`
	Free     uint64 `json:"free"`
	// Reserved are promised and not yet taken; a node's pool doesn't tell.
	Reserved uint64 `json:"reserved"`
	// Surplus are above the pool's size (overcommit).
	Surplus uint64 `json:"surplus"`
}

// PCIDevice is a PCI function.
type PCIDevice struct {
	// Address is domain:bus:device.function in the kernel's notation: "0000:00:1f.2".
	Address string `json:"address"`
	// Class is the 24-bit class code: 0x030000 is a VGA controller.
	Class uint32 `json:"class"`
	// ClassName in words, for the common classes: "VGA controller".
	ClassName       string `json:"className,omitempty"`
	Vendor          uint16 `json:"vendor"`
	Device          uint16 `json:"device"`
	SubsystemVendor uint16 `json:"subsystemVendor"`
	SubsystemDevice uint16 `json:"subsystemDevice"`
	Revision        uint8  `json:"revision"`
	// Driver bound to it; empty: none.
	Driver string `json:"driver,omitempty"`
	// Node is the NUMA node; -1: none is known.
	Node int `json:"node"`
	// IOMMUGroup; -1: none.
	IOMMUGroup int `json:"iommuGroup"`
	// Parent is the address of the bridge that it is attached to; empty: a root bus.
	Parent string `json:"parent,omitempty"`
	// ResetMethods in the order the kernel tries them: "flr", "bus".
	ResetMethods []string `json:"resetMethods,omitempty"`
	// SRIOV of a physical function; nil: it has none.
	SRIOV *SRIOV `json:"sriov,omitempty"`
	// PhysicalFunction is the address of the function that a virtual one belongs to.
	PhysicalFunction string `json:"physicalFunction,omitempty"`
	// VFIODevice is the name of its character device: "vfio0" (/dev/vfio/devices/vfio0).
	VFIODevice string `json:"vfioDevice,omitempty"`
	// Names of what the driver made of it: network interfaces, block devices.
	// Sorted.
	Interfaces   []string `json:"interfaces,omitempty"`
	BlockDevices []string `json:"blockDevices,omitempty"`
	// CPUs near it (local_cpulist).
	CPUs IDList `json:"cpus"`
}

// SRIOV is a physical function's virtual ones.
type SRIOV struct {
	Total int `json:"total"`
	// VirtualFunctions are the addresses of those that are there.
	VirtualFunctions []string `json:"virtualFunctions"`
}

// IOMMUGroup is the least that can be given to a guest: all of its devices.
type IOMMUGroup struct {
	ID int `json:"id"`
	// Type is "DMA", "DMA-FQ", "identity"; empty: unknown.
	Type string `json:"type,omitempty"`
	// Devices by PCI address, or another bus's name for them. Sorted.
	Devices []string `json:"devices"`
	// Viable: VFIO would give it to a guest: all that is in it is known, and bound
	// to a driver of VFIO, to pci-stub, to pcieport (a bridge) or to none.
	Viable bool `json:"viable"`
}

// MediatedDevice (mdev) is a slice of a device.
type MediatedDevice struct {
	UUID string `json:"uuid"`
	// Type is its type's id: "nvidia-222".
	Type string `json:"type"`
	// Parent is the PCI address, or another bus's name, of the device that it is a
	// slice of; empty, as is Type: not known.
	Parent     string `json:"parent"`
	IOMMUGroup int    `json:"iommuGroup"`
	Node       int    `json:"node"`
	VFIODevice string `json:"vfioDevice,omitempty"`
}

// MediatedDeviceType is a kind of slice that a device offers.
type MediatedDeviceType struct {
	ID        string `json:"id"`
	Parent    string `json:"parent"`
	Name      string `json:"name,omitempty"`
	DeviceAPI string `json:"deviceApi,omitempty"`
	// Available is how many more can be made.
	Available   int    `json:"available"`
	Description string `json:"description,omitempty"`
}

// USBDevice is a device on a USB bus; interfaces are not listed.
type USBDevice struct {
	// Name is the kernel's: "1-1.4".
	Name    string `json:"name"`
	Bus     int    `json:"bus"`
	Device  int    `json:"device"`
	Vendor  uint16 `json:"vendor"`
	Product uint16 `json:"product"`
	Class   uint8  `json:"class"`
	// As the device says; made printable.
	Manufacturer string `json:"manufacturer,omitempty"`
	ProductName  string `json:"productName,omitempty"`
	Serial       string `json:"serial,omitempty"`
	// SpeedMbps in megabits a second.
	SpeedMbps float64 `json:"speedMbps,omitempty"`
	Driver    string  `json:"driver,omitempty"`
	// Root hubs are the buses' own ends.
	RootHub bool `json:"rootHub"`
}

// VFIO is what of VFIO is there.
type VFIO struct {
	// Modules of VFIO that are loaded: "vfio_pci".
	Modules []string `json:"modules"`
	// Groups and Cdevs under /dev/vfio: "12", "devices/vfio0".
	Groups []string `json:"groups"`
	Cdevs  []string `json:"cdevs"`
	// IOMMUFD: /dev/iommu is there.
	IOMMUFD bool `json:"iommufd"`
	// NoIOMMU: enable_unsafe_noiommu_mode is on.
	NoIOMMU bool `json:"noIommu"`
}

// Virtualization is what the hypervisors' modules say.
type Virtualization struct {
	// Guest: this machine is itself one: the CPU's hypervisor flag, or the
	// firmware's word on s390x and where there is a device tree.
	Guest bool `json:"guest"`
	// Modules maps a module ("kvm", "kvm_intel", "kvm_amd", "mshv_root") to its
	// parameters ("nested" to "Y"), as the files say.
	Modules map[string]map[string]string `json:"modules"`
	// Nested: guests may have guests (the parameter nested of kvm_intel,
	// kvm_amd, kvm (s390x, POWER)). Nil: unknown.
	Nested *bool `json:"nested,omitempty"`
	// Misc is what the misc cgroup controller has of "sev", "sev_es", "tdx"
	// (misc.capacity).
	Misc map[string]uint64 `json:"misc,omitempty"`
	// S390ProtectedHost: /sys/firmware/uv/prot_virt_host is 1. Nil: not s390x.
	S390ProtectedHost *bool `json:"s390ProtectedHost,omitempty"`
}
