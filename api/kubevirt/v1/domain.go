package v1

import corev1 "k8s.io/api/core/v1"

// DomainSpec is the hardware of a guest.
type DomainSpec struct {
	// What the pod asks the node for. Requests and limits follow from cpu and memory where they
	// are left open, and give cpu and memory where those are.
	// +optional
	Resources ResourceRequirements `json:"resources,omitzero"`
	// The guest's processors.
	// +optional
	CPU *CPU `json:"cpu,omitempty"`
	// The guest's memory.
	// +optional
	Memory *Memory `json:"memory,omitempty"`
	// The machine type.
	// +optional
	Machine *Machine `json:"machine,omitempty"`
	// Firmware, and what it tells the guest.
	// +optional
	Firmware *Firmware `json:"firmware,omitempty"`
	// Clock and timers. Unknown fields are kept.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Clock *Clock `json:"clock,omitempty"`
	// Features of the processors and of the hypervisor.
	// +optional
	Features *Features `json:"features,omitempty"`
	// Disks, network interfaces and other devices.
	Devices Devices `json:"devices"`
	// Which threads serve disks: shared (one for all), auto (a number that follows from the
	// processors) or supplementalPool (ioThreads says how many).
	// +optional
	IOThreadsPolicy *IOThreadsPolicy `json:"ioThreadsPolicy,omitempty"`
	// Threads that serve disks.
	// +optional
	IOThreads *DiskIOThreads `json:"ioThreads,omitempty"`
	// The chassis, in the guest's SMBIOS tables.
	// +optional
	Chassis *Chassis `json:"chassis,omitempty"`
	// Protection of the guest's memory from the host.
	// +optional
	LaunchSecurity *LaunchSecurity `json:"launchSecurity,omitempty"`
	// What a reboot from within the guest does: Reboot (the default) resets the guest in its
	// pod, Terminate ends the instance.
	// +optional
	RebootPolicy *RebootPolicy `json:"rebootPolicy,omitempty"`
}

// ResourceRequirements are what a pod asks its node for.
type ResourceRequirements struct {
	// What the node sets aside: cpu, memory and other resources.
	// +optional
	Requests corev1.ResourceList `json:"requests,omitempty"`
	// The most that the pod can use.
	// +optional
	Limits corev1.ResourceList `json:"limits,omitempty"`
	// Whether the memory that the VMM takes beside the guest's is left out of the request.
	// +optional
	OvercommitGuestOverhead bool `json:"overcommitGuestOverhead,omitempty"`
}

// Machine is the machine type.
type Machine struct {
	// Machine type, such as q35. Empty is the cluster's.
	// +optional
	Type string `json:"type,omitempty"`
}

// IOThreadsPolicy says which threads serve disks.
//
// +kubebuilder:validation:Enum=shared;auto;supplementalPool
type IOThreadsPolicy string

// The policies for disks' threads.
const (
	IOThreadsShared           IOThreadsPolicy = "shared"
	IOThreadsAuto             IOThreadsPolicy = "auto"
	IOThreadsSupplementalPool IOThreadsPolicy = "supplementalPool"
)

// DiskIOThreads are threads that serve disks.
type DiskIOThreads struct {
	// Number of threads, with ioThreadsPolicy supplementalPool.
	// +optional
	// +kubebuilder:validation:Minimum=0
	SupplementalPoolThreadCount *int32 `json:"supplementalPoolThreadCount,omitempty"`
}

// RebootPolicy says what a reboot from within the guest does.
//
// +kubebuilder:validation:Enum=Reboot;Terminate
type RebootPolicy string

// The reboot policies.
const (
	RebootInPlace   RebootPolicy = "Reboot"
	RebootTerminate RebootPolicy = "Terminate"
)

// Chassis is the chassis in the guest's SMBIOS tables.
type Chassis struct {
	// Manufacturer of the chassis.
	// +optional
	Manufacturer string `json:"manufacturer,omitempty"`
	// Version of the chassis.
	// +optional
	Version string `json:"version,omitempty"`
	// Serial number of the chassis.
	// +optional
	Serial string `json:"serial,omitempty"`
	// Asset tag of the chassis.
	// +optional
	Asset string `json:"asset,omitempty"`
	// Stock-keeping unit of the chassis.
	// +optional
	SKU string `json:"sku,omitempty"`
}

// LaunchSecurity is how a guest's memory is protected from the host. At most one is set.
//
// +kubebuilder:validation:XValidation:rule="[has(self.sev), has(self.snp), has(self.tdx)].filter(x, x).size() <= 1",message="at most one of sev, snp and tdx may be set"
type LaunchSecurity struct {
	// AMD Secure Encrypted Virtualization.
	// +optional
	SEV *SEV `json:"sev,omitempty"`
	// AMD Secure Encrypted Virtualization with Secure Nested Paging.
	// +optional
	SNP *SNP `json:"snp,omitempty"`
	// Intel Trust Domain Extensions.
	// +optional
	TDX *TDX `json:"tdx,omitempty"`
}

// SEV is AMD Secure Encrypted Virtualization.
type SEV struct {
	// What the guest demands of its protection.
	// +optional
	Policy *SEVPolicy `json:"policy,omitempty"`
	// The guest is held before its first instruction until it has been attested.
	// +optional
	Attestation *SEVAttestation `json:"attestation,omitempty"`
	// The owner's session, in base64.
	// +optional
	Session string `json:"session,omitempty"`
	// The owner's Diffie-Hellman certificate, in base64.
	// +optional
	DHCert string `json:"dhCert,omitempty"`
}

// SEVPolicy is what a guest demands of its protection.
type SEVPolicy struct {
	// Whether registers are encrypted as well (SEV-ES).
	// +optional
	EncryptedState *bool `json:"encryptedState,omitempty"`
}

// SEVAttestation has no settings.
type SEVAttestation struct{}

// SNP has no settings.
type SNP struct{}

// TDX has no settings.
type TDX struct{}
