package v1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// VirtualMachinePreference is what VMs of its namespace have unless they say otherwise.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=vmpref;vmprefs;vmp;vmps,categories=all
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=vmlet"
// +kubebuilder:metadata:labels="vmlet.io/definition="
type VirtualMachinePreference struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`
	// What is preferred.
	Spec VirtualMachinePreferenceSpec `json:"spec"`
}

// VirtualMachinePreferenceList is a list of VirtualMachinePreferences.
//
// +kubebuilder:object:root=true
type VirtualMachinePreferenceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []VirtualMachinePreference `json:"items"`
}

// VirtualMachineClusterPreference is what VMs of any namespace have unless they say otherwise.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=vmcp;vmcps
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=vmlet"
// +kubebuilder:metadata:labels="vmlet.io/definition="
type VirtualMachineClusterPreference struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`
	// What is preferred.
	Spec VirtualMachinePreferenceSpec `json:"spec"`
}

// VirtualMachineClusterPreferenceList is a list of VirtualMachineClusterPreferences.
//
// +kubebuilder:object:root=true
type VirtualMachineClusterPreferenceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []VirtualMachineClusterPreference `json:"items"`
}

// VirtualMachinePreferenceSpec fills what a VM leaves open.
type VirtualMachinePreferenceSpec struct {
	// Clock and timers.
	// +optional
	Clock *ClockPreferences `json:"clock,omitempty"`
	// Processors.
	// +optional
	CPU *CPUPreferences `json:"cpu,omitempty"`
	// Disks, network interfaces and other devices.
	// +optional
	Devices *DevicePreferences `json:"devices,omitempty"`
	// Features of the processors and of the hypervisor.
	// +optional
	Features *FeaturePreferences `json:"features,omitempty"`
	// BIOS or UEFI.
	// +optional
	Firmware *FirmwarePreferences `json:"firmware,omitempty"`
	// Machine type.
	// +optional
	Machine *MachinePreferences `json:"machine,omitempty"`
	// Claims that are made for the VM.
	// +optional
	Volumes *VolumePreferences `json:"volumes,omitempty"`
	// Subdomain of the guest's name.
	// +optional
	PreferredSubdomain *string `json:"preferredSubdomain,omitempty"`
	// Seconds that a guest has to shut down.
	// +optional
	PreferredTerminationGracePeriodSeconds *int64 `json:"preferredTerminationGracePeriodSeconds,omitempty"`
	// What a VM has to have at least. One that has less is refused.
	// +optional
	Requirements *PreferenceRequirements `json:"requirements,omitempty"`
	// Annotations of the VM's instance.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// Cores of a socket where the topology is spread. Defaults to 2; cpu.spreadOptions.ratio
	// counts before it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	PreferSpreadSocketToCoreRatio int32 `json:"preferSpreadSocketToCoreRatio,omitempty"`
	// Architecture of the guest.
	// +optional
	PreferredArchitecture *string `json:"preferredArchitecture,omitempty"`
	// Protection of the guest's memory from the host.
	// +optional
	PreferredLaunchSecurity *kubevirtv1.LaunchSecurity `json:"preferredLaunchSecurity,omitempty"`
}

// VolumePreferences are of claims that are made for a VM.
type VolumePreferences struct {
	// StorageClass of the VM's dataVolumeTemplates.
	// +optional
	PreferredStorageClassName string `json:"preferredStorageClassName,omitempty"`
}

// PreferredCPUTopology says as what a guest sees its processors.
//
// +kubebuilder:validation:Enum=sockets;cores;threads;spread;any;preferSockets;preferCores;preferThreads;preferSpread;preferAny
type PreferredCPUTopology string

// The topologies: with Spread two or three of sockets, cores and threads have a part, Any leaves
// the VM its own and gives sockets to an instancetype's. The old names mean the same.
const (
	Sockets PreferredCPUTopology = "sockets"
	Cores   PreferredCPUTopology = "cores"
	Threads PreferredCPUTopology = "threads"
	Spread  PreferredCPUTopology = "spread"
	Any     PreferredCPUTopology = "any"

	OldSockets PreferredCPUTopology = "preferSockets"
	OldCores   PreferredCPUTopology = "preferCores"
	OldThreads PreferredCPUTopology = "preferThreads"
	OldSpread  PreferredCPUTopology = "preferSpread"
	OldAny     PreferredCPUTopology = "preferAny"
)

// CPUPreferences are of a guest's processors.
//
// +kubebuilder:validation:XValidation:rule="!has(self.preferredCPUTopology) || !(self.preferredCPUTopology in ['spread', 'preferSpread']) || !has(self.spreadOptions) || !has(self.spreadOptions.across) || self.spreadOptions.across != 'CoresThreads' || !has(self.spreadOptions.ratio) || self.spreadOptions.ratio == 2",message="spreadOptions.ratio has to be 2 across cores and threads"
type CPUPreferences struct {
	// As what the guest sees an instancetype's processors: sockets (the default), cores, threads,
	// spread (as spreadOptions say) or any. The names preferSockets, preferCores ... are
	// deprecated.
	// +optional
	PreferredCPUTopology *PreferredCPUTopology `json:"preferredCPUTopology,omitempty"`
	// How processors are spread.
	// +optional
	SpreadOptions *SpreadOptions `json:"spreadOptions,omitempty"`
	// Features added to the CPU model or taken from it. One that the VM names stays as it is there.
	// +optional
	PreferredCPUFeatures []kubevirtv1.CPUFeature `json:"preferredCPUFeatures,omitempty"`
}

// SpreadAcross says over what processors are spread.
//
// +kubebuilder:validation:Enum=SocketsCoresThreads;SocketsCores;CoresThreads
type SpreadAcross string

// What processors can be spread over.
const (
	SpreadAcrossSocketsCoresThreads SpreadAcross = "SocketsCoresThreads"
	SpreadAcrossSocketsCores        SpreadAcross = "SocketsCores"
	SpreadAcrossCoresThreads        SpreadAcross = "CoresThreads"
)

// SpreadOptions say how processors are spread.
type SpreadOptions struct {
	// SocketsCores (the default), CoresThreads or SocketsCoresThreads.
	// +optional
	Across *SpreadAcross `json:"across,omitempty"`
	// Cores of a socket, or threads of a core across CoresThreads, where it has to be 2. Across
	// SocketsCoresThreads a core has 2 threads. Defaults to 2.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Ratio *int32 `json:"ratio,omitempty"`
}

// FeaturePreferences are features of the processors and of the hypervisor.
type FeaturePreferences struct {
	// ACPI.
	// +optional
	PreferredACPI *kubevirtv1.FeatureState `json:"preferredAcpi,omitempty"`
	// The interrupt controller.
	// +optional
	PreferredAPIC *kubevirtv1.FeatureAPIC `json:"preferredApic,omitempty"`
	// Enlightenments of Hyper-V, each for itself.
	// +optional
	PreferredHyperv *kubevirtv1.FeatureHyperv `json:"preferredHyperv,omitempty"`
	// What the guest sees of KVM.
	// +optional
	PreferredKVM *kubevirtv1.FeatureKVM `json:"preferredKvm,omitempty"`
	// Paravirtual spinlocks.
	// +optional
	PreferredPVSpinlock *kubevirtv1.FeatureState `json:"preferredPvspinlock,omitempty"`
	// System Management Mode.
	// +optional
	PreferredSMM *kubevirtv1.FeatureState `json:"preferredSmm,omitempty"`
}

// FirmwarePreferences are of what a guest is booted by. A VM that names a bootloader has that.
type FirmwarePreferences struct {
	// Boot by BIOS.
	// +optional
	PreferredUseBIOS *bool `json:"preferredUseBios,omitempty"`
	// Whether the BIOS writes to the serial console.
	// +optional
	PreferredUseBIOSSerial *bool `json:"preferredUseBiosSerial,omitempty"`
	// Deprecated: use preferredEfi. Boot by UEFI.
	// +optional
	PreferredUseEFI *bool `json:"preferredUseEfi,omitempty"`
	// Deprecated: use preferredEfi. Whether the firmware starts signed programs alone.
	// +optional
	PreferredUseSecureBoot *bool `json:"preferredUseSecureBoot,omitempty"`
	// Boot by UEFI.
	// +optional
	PreferredEFI *kubevirtv1.EFI `json:"preferredEfi,omitempty"`
}

// MachinePreferences are of the machine type.
type MachinePreferences struct {
	// Machine type, such as q35.
	// +optional
	PreferredMachineType string `json:"preferredMachineType,omitempty"`
}

// ClockPreferences are of clock and timers.
type ClockPreferences struct {
	// What the clock shows, for a VM that has neither utc nor timezone.
	// +optional
	PreferredClockOffset *ClockOffset `json:"preferredClockOffset,omitempty"`
	// Timers of the guest, for a VM that names none.
	// +optional
	PreferredTimer *kubevirtv1.Timer `json:"preferredTimer,omitempty"`
}

// ClockOffset is what a clock shows.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.utc) && has(self.timezone))",message="at most one of utc and timezone may be set"
type ClockOffset struct {
	// The clock shows UTC.
	// +optional
	UTC *kubevirtv1.ClockUTC `json:"utc,omitempty"`
	// Time zone of the clock, such as Europe/Berlin.
	// +optional
	Timezone *string `json:"timezone,omitempty"`
}

// PreferenceRequirements are what a VM has to have at least.
type PreferenceRequirements struct {
	// Processors.
	// +optional
	CPU *CPUPreferenceRequirement `json:"cpu,omitempty"`
	// Memory.
	// +optional
	Memory *MemoryPreferenceRequirement `json:"memory,omitempty"`
	// The architecture.
	// +optional
	Architecture *string `json:"architecture,omitempty"`
}

// CPUPreferenceRequirement is a number of processors.
type CPUPreferenceRequirement struct {
	// Number of processors that the guest has at least.
	// +kubebuilder:validation:Minimum=0
	Guest int32 `json:"guest"`
}

// MemoryPreferenceRequirement is an amount of memory.
type MemoryPreferenceRequirement struct {
	// Memory that the guest has at least.
	Guest resource.Quantity `json:"guest"`
}
