package v1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KubeVirtConfiguration is settings of VMs. Those of the parts of KubeVirt that vmlet does
// without are kept for manifests that have them.
type KubeVirtConfiguration struct {
	// CPU model of VMs that don't name one. Defaults to host-model.
	// +optional
	CPUModel string `json:"cpuModel,omitempty"`
	// CPU that the pod of a VM requests that doesn't say. Defaults to 100m for each processor of
	// its guest.
	// +optional
	CPURequest *resource.Quantity `json:"cpuRequest,omitempty"`
	// Feature gates, and settings for trials.
	// +optional
	DeveloperConfiguration *DeveloperConfiguration `json:"developerConfiguration,omitempty"`
	// Deprecated: use architectureConfiguration.
	// +optional
	EmulatedMachines []string `json:"emulatedMachines,omitempty"`
	// When images are pulled for VMs' pods: Always, IfNotPresent or Never.
	// +optional
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
	// Limits of migrations.
	// +optional
	Migrations *MigrationConfiguration `json:"migrations,omitempty"`
	// Deprecated: use architectureConfiguration.
	// +optional
	MachineType string `json:"machineType,omitempty"`
	// How guests are connected.
	// +optional
	Network *NetworkConfiguration `json:"network,omitempty"`
	// Deprecated: use architectureConfiguration.
	// +optional
	OVMFPath string `json:"ovmfPath,omitempty"`
	// SELinux type of VMs' pods.
	// +optional
	SELinuxLauncherType string `json:"selinuxLauncherType,omitempty"`
	// RuntimeClass of VMs' pods.
	// +optional
	DefaultRuntimeClass string `json:"defaultRuntimeClass,omitempty"`
	// What guests see in their SMBIOS tables.
	// +optional
	SMBIOS *SMBIOSConfiguration `json:"smbios,omitempty"`
	// Settings for each architecture.
	// +optional
	ArchitectureConfiguration *ArchitectureConfiguration `json:"architectureConfiguration,omitempty"`
	// Eviction strategy of VMs that don't name one: None (the default), LiveMigrate,
	// LiveMigrateIfPossible or External.
	// +optional
	EvictionStrategy *EvictionStrategy `json:"evictionStrategy,omitempty"`
	// How VMs hibernate that leave it open.
	// +optional
	DefaultHibernateConfig *HibernateDefaults `json:"defaultHibernateConfig,omitempty"`
	// Factor, such as 1.5, on the memory that a VM's pod has beside its guest's.
	// +optional
	AdditionalGuestMemoryOverheadRatio *string `json:"additionalGuestMemoryOverheadRatio,omitempty"`
	// Resources of the containers beside the guest's.
	// +optional
	// +listType=map
	// +listMapKey=type
	SupportContainerResources []SupportContainerResources `json:"supportContainerResources,omitempty"`
	// Versions of the guest agent that are supported, as patterns.
	// +optional
	SupportedGuestAgentVersions []string `json:"supportedGuestAgentVersions,omitempty"`
	// Seconds between two readings of a guest's memory balloon. 0 is none. Defaults to 10.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MemBalloonStatsPeriod *int32 `json:"memBalloonStatsPeriod,omitempty"`
	// Devices of hosts that guests may be given.
	// +optional
	PermittedHostDevices *PermittedHostDevices `json:"permittedHostDevices,omitempty"`
	// Mediated devices that nodes make.
	// +optional
	MediatedDevicesConfiguration *MediatedDevicesConfiguration `json:"mediatedDevicesConfiguration,omitempty"`
	// CPU model whose features are left out of those that nodes are labelled with.
	// +optional
	MinCPUModel string `json:"minCPUModel,omitempty"`
	// CPU models that nodes are not labelled with.
	// +optional
	ObsoleteCPUModels map[string]bool `json:"obsoleteCPUModels,omitempty"`
	// Guests that a node can run. Defaults to 110.
	// +optional
	VirtualMachineInstancesPerNode *int `json:"virtualMachineInstancesPerNode,omitempty"`
	// How often virt-api may ask the API server.
	// +optional
	APIConfiguration *ProgramConfiguration `json:"apiConfiguration,omitempty"`
	// How often webhooks may ask the API server.
	// +optional
	WebhookConfiguration *ProgramConfiguration `json:"webhookConfiguration,omitempty"`
	// How often virt-controller may ask the API server.
	// +optional
	ControllerConfiguration *ProgramConfiguration `json:"controllerConfiguration,omitempty"`
	// How often virt-handler may ask the API server.
	// +optional
	HandlerConfiguration *ProgramConfiguration `json:"handlerConfiguration,omitempty"`
	// TLS of the cluster's servers.
	// +optional
	TLSConfiguration *TLSConfiguration `json:"tlsConfiguration,omitempty"`
	// System calls that VMs' pods may make.
	// +optional
	SeccompConfiguration *SeccompConfiguration `json:"seccompConfiguration,omitempty"`
	// Storage class of claims that keep TPM and firmware state.
	// +optional
	VMStateStorageClass string `json:"vmStateStorageClass,omitempty"`
	// What VMs do without.
	// +optional
	VirtualMachineOptions *VirtualMachineOptions `json:"virtualMachineOptions,omitempty"`
	// Nodes that share equal pages of memory.
	// +optional
	KSMConfiguration *KSMConfiguration `json:"ksmConfiguration,omitempty"`
	// Namespaces whose VMs' pods are given a CPU limit.
	// +optional
	AutoCPULimitNamespaceLabelSelector *metav1.LabelSelector `json:"autoCPULimitNamespaceLabelSelector,omitempty"`
	// How much running guests can be given.
	// +optional
	LiveUpdateConfiguration *LiveUpdateConfiguration `json:"liveUpdateConfiguration,omitempty"`
	// When changes of a VM's template take effect: LiveUpdate (the default; at once where the
	// running guest allows it) or Stage (at the next start).
	// +optional
	VMRolloutStrategy *VMRolloutStrategy `json:"vmRolloutStrategy,omitempty"`
	// Instance types and preferences that every cluster has.
	// +optional
	CommonInstancetypesDeployment *Switch `json:"commonInstancetypesDeployment,omitempty"`
	// Templates of VMs.
	// +optional
	VirtTemplateDeployment *Switch `json:"virtTemplateDeployment,omitempty"`
	// How VMs refer to instance types.
	// +optional
	Instancetype *InstancetypeConfiguration `json:"instancetype,omitempty"`
	// The hypervisor of VMs that name none. Needs the feature gate ConfigurableHypervisor.
	// +optional
	HypervisorConfiguration *HypervisorConfiguration `json:"hypervisorConfiguration,omitempty"`
	// The hypervisor of VMs that name none, as KubeVirt has it: hypervisorConfiguration counts before
	// it. Needs the feature gate ConfigurableHypervisor.
	// +optional
	// +kubebuilder:validation:MaxItems=1
	Hypervisors []HypervisorConfiguration `json:"hypervisors,omitempty"`
	// The virtualisation stack. Needs the feature gate PluginVirtualizationStacks.
	// +optional
	VirtualizationProfile *VirtualizationProfile `json:"virtualizationProfile,omitempty"`
	// VMs whose disks' changed blocks are tracked.
	// +optional
	ChangedBlockTrackingLabelSelectors *ChangedBlockTrackingSelectors `json:"changedBlockTrackingLabelSelectors,omitempty"`
	// Persistent reservations of SCSI devices.
	// +optional
	PersistentReservationConfiguration *Switch `json:"persistentReservationConfiguration,omitempty"`
	// Attestation of protected guests.
	// +optional
	ConfidentialCompute *ConfidentialCompute `json:"confidentialCompute,omitempty"`
	// Whether the cluster's roles admin, edit and view include VMs: AggregateToDefault (the
	// default) or Manual.
	// +optional
	RoleAggregationStrategy *RoleAggregationStrategy `json:"roleAggregationStrategy,omitempty"`
}

// VMRolloutStrategy says when changes of a VM's template take effect.
//
// +kubebuilder:validation:Enum=LiveUpdate;Stage
type VMRolloutStrategy string

// The rollout strategies.
const (
	RolloutLiveUpdate VMRolloutStrategy = "LiveUpdate"
	RolloutStage      VMRolloutStrategy = "Stage"
)

// RoleAggregationStrategy says whether the cluster's roles include VMs.
//
// +kubebuilder:validation:Enum=AggregateToDefault;Manual
type RoleAggregationStrategy string

// The strategies for roles.
const (
	RolesAggregateToDefault RoleAggregationStrategy = "AggregateToDefault"
	RolesManual             RoleAggregationStrategy = "Manual"
)

// Switch is something that is on or off.
type Switch struct {
	// Whether it is on.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
}

// DeveloperConfiguration is feature gates, and settings for trials.
type DeveloperConfiguration struct {
	// Feature gates that are on. Unknown names do nothing.
	// +optional
	FeatureGates []string `json:"featureGates,omitempty"`
	// Feature gates that are off though they are on by default.
	// +optional
	DisabledFeatureGates []string `json:"disabledFeatureGates,omitempty"`
	// Percent that a volume's file system may offer less than was asked for. Defaults to 10.
	// +optional
	PVCTolerateLessSpaceUpToPercent int `json:"pvcTolerateLessSpaceUpToPercent,omitempty"`
	// Bytes of a volume's file system that no disk takes. Defaults to 131072.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinimumReservePVCBytes int64 `json:"minimumReservePVCBytes,omitempty"`
	// Percent of the pod's memory that a guest sees. Defaults to 100.
	// +optional
	// +kubebuilder:validation:Minimum=10
	MemoryOvercommit int `json:"memoryOvercommit,omitempty"`
	// Deprecated: use workloads.nodePlacement. Labels that VMs' nodes must have.
	// +optional
	NodeSelectors map[string]string `json:"nodeSelectors,omitempty"`
	// Whether guests are emulated where the hypervisor is missing.
	// +optional
	UseEmulation bool `json:"useEmulation,omitempty"`
	// Processors of guests for each one that their pods request. Defaults to 10.
	// +optional
	CPUAllocationRatio int `json:"cpuAllocationRatio,omitempty"`
	// Lowest frequency of the time stamp counter that guests are given, in hertz.
	// +optional
	MinimumClusterTSCFrequency *int64 `json:"minimumClusterTSCFrequency,omitempty"`
	// Limits of the program that inspects disks.
	// +optional
	DiskVerification *DiskVerification `json:"diskVerification,omitempty"`
	// How much programs log.
	// +optional
	LogVerbosity *LogVerbosity `json:"logVerbosity,omitempty"`
	// Whether programs can be profiled.
	// +optional
	ClusterProfiler bool `json:"clusterProfiler,omitempty"`
}

// DiskVerification is limits of the program that inspects disks.
type DiskVerification struct {
	// Memory that it may take. Defaults to 2000Mi.
	MemoryLimit *resource.Quantity `json:"memoryLimit"`
}

// LogVerbosity is how much programs log, from 0 to 9.
type LogVerbosity struct {
	// Verbosity of virt-api.
	// +optional
	// +kubebuilder:validation:Minimum=0
	VirtAPI int `json:"virtAPI,omitempty"`
	// Verbosity of virt-controller.
	// +optional
	// +kubebuilder:validation:Minimum=0
	VirtController int `json:"virtController,omitempty"`
	// Verbosity of virt-handler.
	// +optional
	// +kubebuilder:validation:Minimum=0
	VirtHandler int `json:"virtHandler,omitempty"`
	// Verbosity of virt-launcher.
	// +optional
	// +kubebuilder:validation:Minimum=0
	VirtLauncher int `json:"virtLauncher,omitempty"`
	// Verbosity of virt-operator.
	// +optional
	// +kubebuilder:validation:Minimum=0
	VirtOperator int `json:"virtOperator,omitempty"`
	// Verbosity of virt-synchronization-controller.
	// +optional
	// +kubebuilder:validation:Minimum=0
	VirtSynchronizationController int `json:"virtSynchronizationController,omitempty"`
	// Verbosity of virt-handler on single nodes, by their names.
	// +optional
	NodeVerbosity map[string]int `json:"nodeVerbosity,omitempty"`
}

// ArchitectureConfiguration is settings for each architecture.
type ArchitectureConfiguration struct {
	// Guests of x86-64.
	// +optional
	AMD64 *ArchitectureSettings `json:"amd64,omitempty"`
	// Guests of 64-bit Arm.
	// +optional
	ARM64 *ArchitectureSettings `json:"arm64,omitempty"`
	// Deprecated: guests of POWER are no longer supported.
	// +optional
	PPC64LE *ArchitectureSettings `json:"ppc64le,omitempty"`
	// Guests of IBM Z.
	// +optional
	S390X *ArchitectureSettings `json:"s390x,omitempty"`
	// Architecture of VMs that don't name one.
	// +optional
	DefaultArchitecture string `json:"defaultArchitecture,omitempty"`
}

// ArchitectureSettings is settings for guests of an architecture.
type ArchitectureSettings struct {
	// Directory of the UEFI firmware.
	// +optional
	OVMFPath string `json:"ovmfPath,omitempty"`
	// Machine types that VMs may have, as patterns such as q35*.
	// +optional
	EmulatedMachines []string `json:"emulatedMachines,omitempty"`
	// Machine type of VMs that don't name one.
	// +optional
	MachineType string `json:"machineType,omitempty"`
}

// SMBIOSConfiguration is what guests see in their SMBIOS tables.
type SMBIOSConfiguration struct {
	// Manufacturer of the system.
	// +optional
	Manufacturer string `json:"manufacturer,omitempty"`
	// Product name of the system.
	// +optional
	Product string `json:"product,omitempty"`
	// Version of the system.
	// +optional
	Version string `json:"version,omitempty"`
	// Stock-keeping unit of the system.
	// +optional
	SKU string `json:"sku,omitempty"`
	// Family of the system.
	// +optional
	Family string `json:"family,omitempty"`
}

// LiveUpdateConfiguration is how much running guests can be given.
type LiveUpdateConfiguration struct {
	// Factor by which processors and memory can grow. Defaults to 4.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxHotplugRatio int32 `json:"maxHotplugRatio,omitempty"`
	// Sockets that a guest can have.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxCPUSockets *int32 `json:"maxCpuSockets,omitempty"`
	// Memory that a guest can have.
	// +optional
	MaxGuest *resource.Quantity `json:"maxGuest,omitempty"`
}

// InstancetypeConfiguration is how VMs refer to instance types.
type InstancetypeConfiguration struct {
	// What becomes of a VM's reference: reference (the default) keeps it, expand replaces it by
	// the fields it stands for in new VMs, expandAll in all.
	// +optional
	ReferencePolicy *InstancetypeReferencePolicy `json:"referencePolicy,omitempty"`
}

// InstancetypeReferencePolicy says what becomes of references to instance types.
//
// +kubebuilder:validation:Enum=reference;expand;expandAll
type InstancetypeReferencePolicy string

// The policies for references.
const (
	InstancetypeReference InstancetypeReferencePolicy = "reference"
	InstancetypeExpand    InstancetypeReferencePolicy = "expand"
	InstancetypeExpandAll InstancetypeReferencePolicy = "expandAll"
)

// HypervisorConfiguration is a hypervisor.
type HypervisorConfiguration struct {
	// kvm, mshv (Microsoft's hypervisor under Linux, also hyperv-layered and hyperv-direct), emulation,
	// or auto: the first of them whose device some node offers. Empty is kvm.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`
}

// ChangedBlockTrackingSelectors is VMs whose disks' changed blocks are tracked: those that
// either selector matches.
type ChangedBlockTrackingSelectors struct {
	// Labels of namespaces.
	// +optional
	NamespaceLabelSelector *metav1.LabelSelector `json:"namespaceLabelSelector,omitempty"`
	// Labels of VMs.
	// +optional
	VirtualMachineLabelSelector *metav1.LabelSelector `json:"virtualMachineLabelSelector,omitempty"`
}
