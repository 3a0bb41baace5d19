package fact

// Path is a part of the document, and all that is below it.
type Path string

// Parts that a document has once.
const (
	Node        Path = "node"
	Devices     Path = "devices"
	Hypervisors Path = "hypervisors"
	VMMs        Path = "vmms"

	DefaultHypervisor Path = "defaultHypervisor"

	Host                     Path = "host"
	HostClocksource               = Host + ".clocksource"
	HostCPU                       = Host + ".cpu"
	HostHugePages                 = Host + ".hugePages"
	HostIOMMUGroups               = Host + ".iommuGroups"
	HostKernelRelease             = Host + ".kernelRelease"
	HostKSM                       = Host + ".ksm"    // the field ksmEnabled
	HostMemory                    = Host + ".memory" // the fields memoryBytes and swapBytes
	HostNested                    = Host + ".nested"
	HostNUMANodes                 = Host + ".numaNodes"
	HostRealtime                  = Host + ".realtime"
	HostTransparentHugePages      = Host + ".transparentHugePages"
	HostVFIO                      = Host + ".vfio"
	HostVulnerabilities           = Host + ".vulnerabilities"

	Confidential            Path = "confidentialComputing"
	ConfidentialS390PV           = Confidential + ".s390Pv"
	ConfidentialSEV              = Confidential + ".sev"
	ConfidentialSEVES            = Confidential + ".sevEs"
	ConfidentialSEVPlatform      = Confidential + ".sevPlatform"
	ConfidentialSEVSNP           = Confidential + ".sevSnp"
	ConfidentialTDX              = Confidential + ".tdx"
)

// HypervisorField is a part of each hypervisor.
type HypervisorField string

const (
	CPUID           HypervisorField = "cpuid"
	Extensions      HypervisorField = "extensions"
	FeatureMSRs     HypervisorField = "featureMsrs"
	HypervCPUID     HypervisorField = "hypervCpuid"
	HypervFeatures  HypervisorField = "hypervFeatures"
	HypervisorState HypervisorField = "state"
	Limits          HypervisorField = "limits"
	MSRs            HypervisorField = "msrs"
	Nested          HypervisorField = "nested"
	TSC             HypervisorField = "tsc"
)

// VMMField is a part of each VMM.
type VMMField string

const (
	LazyRestore  VMMField = "lazyRestore"
	MachineTypes VMMField = "machineTypes"
	VMMState     VMMField = "state"
	VMMVersion   VMMField = "version"
)

// AcceleratorField is a part of what a VMM can do under a hypervisor.
type AcceleratorField string

const (
	CPUFeatures  AcceleratorField = "cpuFeatures"
	CPUModels    AcceleratorField = "cpuModels"
	HostCPUModel AcceleratorField = "hostCpuModel"
)
