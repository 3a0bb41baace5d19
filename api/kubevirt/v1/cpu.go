package v1

import "k8s.io/apimachinery/pkg/api/resource"

// CPU is a guest's processors. Without sockets, cores and threads their number follows from
// the resources.
type CPU struct {
	// Sockets of the guest. Running guests can be given more.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Sockets int32 `json:"sockets,omitempty"`
	// Cores of a socket.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Cores int32 `json:"cores,omitempty"`
	// Threads of a core.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Threads int32 `json:"threads,omitempty"`
	// Sockets that the running guest can be given.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxSockets int32 `json:"maxSockets,omitempty"`
	// CPU model: a name such as Skylake-Server, host-model (the named model nearest to the
	// node's processor) or host-passthrough (the node's processor). Defaults to the cluster's
	// cpuModel.
	// +optional
	Model string `json:"model,omitempty"`
	// Features added to the model or taken from it.
	// +optional
	Features []CPUFeature `json:"features,omitempty"`
	// Whether each processor of the guest has one of the node's to itself.
	// +optional
	DedicatedCPUPlacement bool `json:"dedicatedCpuPlacement,omitempty"`
	// NUMA topology of the guest.
	// +optional
	NUMA *NUMA `json:"numa,omitempty"`
	// Whether the VMM's own threads have a processor of the node to themselves.
	// +optional
	IsolateEmulatorThread bool `json:"isolateEmulatorThread,omitempty"`
	// Real-time scheduling of the guest's processors.
	// +optional
	Realtime *Realtime `json:"realtime,omitempty"`
}

// CPUFeature is a feature added to a CPU model or taken from it.
type CPUFeature struct {
	// Name of the feature, such as vmx.
	Name string `json:"name"`
	// require (the default): the guest has it, and only nodes are fit that do; force: the guest
	// has it whatever the node has; optional: if the node has it; disable: the guest doesn't
	// have it; forbid: and only nodes are fit that don't.
	// +optional
	Policy CPUFeaturePolicy `json:"policy,omitempty"`
}

// CPUFeaturePolicy says whether guest and node have a feature.
//
// +kubebuilder:validation:Enum="";force;require;optional;disable;forbid
type CPUFeaturePolicy string

// The policies for CPU features.
const (
	CPUFeatureForce    CPUFeaturePolicy = "force"
	CPUFeatureRequire  CPUFeaturePolicy = "require"
	CPUFeatureOptional CPUFeaturePolicy = "optional"
	CPUFeatureDisable  CPUFeaturePolicy = "disable"
	CPUFeatureForbid   CPUFeaturePolicy = "forbid"
)

// NUMA is the NUMA topology of a guest.
type NUMA struct {
	// The guest sees the NUMA nodes that its processors and memory are on. Needs
	// dedicatedCpuPlacement and huge pages.
	// +optional
	GuestMappingPassthrough *NUMAGuestMappingPassthrough `json:"guestMappingPassthrough,omitempty"`
}

// NUMAGuestMappingPassthrough has no settings.
type NUMAGuestMappingPassthrough struct{}

// Realtime is real-time scheduling of a guest's processors.
type Realtime struct {
	// Processors that are scheduled so, such as 0-3,^1. Empty is all.
	// +optional
	Mask string `json:"mask,omitempty"`
}

// CPUTopology is a number of processors, as the guest sees them.
type CPUTopology struct {
	// Sockets of the guest.
	// +optional
	Sockets int32 `json:"sockets,omitempty"`
	// Cores of a socket.
	// +optional
	Cores int32 `json:"cores,omitempty"`
	// Threads of a core.
	// +optional
	Threads int32 `json:"threads,omitempty"`
}

// Memory is a guest's memory.
type Memory struct {
	// Memory that the guest sees. Defaults to the memory that the pod requests, or to its limit.
	// Running guests can be given more.
	// +optional
	Guest *resource.Quantity `json:"guest,omitempty"`
	// Memory that the running guest can be given.
	// +optional
	MaxGuest *resource.Quantity `json:"maxGuest,omitempty"`
	// Huge pages that the guest's memory is made of.
	// +optional
	Hugepages *Hugepages `json:"hugepages,omitempty"`
	// Memory set aside beside the guest's and what the VMM is known to take.
	// +optional
	ReservedOverhead *ReservedOverhead `json:"reservedOverhead,omitempty"`
}

// Hugepages are the pages that a guest's memory is made of.
type Hugepages struct {
	// Size of a page, such as 2Mi or 1Gi.
	// +optional
	PageSize string `json:"pageSize,omitempty"`
}

// ReservedOverhead is memory set aside beside what is known to be needed.
type ReservedOverhead struct {
	// Memory added to the pod's.
	// +optional
	AddedOverhead *resource.Quantity `json:"addedOverhead,omitempty"`
	// Whether the VMM has to lock the guest's memory: Required or NotRequired.
	// +optional
	MemLock *MemLock `json:"memLock,omitempty"`
}

// MemLock says whether a VMM has to lock the guest's memory.
//
// +kubebuilder:validation:Enum=NotRequired;Required
type MemLock string

// The needs for locked memory.
const (
	MemLockNotRequired MemLock = "NotRequired"
	MemLockRequired    MemLock = "Required"
)
