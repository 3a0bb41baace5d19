package v1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// VirtualMachineInstanceStatus is an instance as it is.
type VirtualMachineInstanceStatus struct {
	// Name of the node that the guest runs on.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// Why the instance is in its phase, in a word.
	// +optional
	Reason string `json:"reason,omitempty"`
	// The instance's conditions.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
	// Where the instance is in its life: Pending, Scheduling, Scheduled, Running, Succeeded,
	// Failed, WaitingForSync or Unknown.
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// When the instance entered each phase.
	// +optional
	PhaseTransitionTimestamps []PhaseTransition `json:"phaseTransitionTimestamps,omitempty"`
	// The guest's network interfaces. The guest can be reached at the first one's ipAddress.
	// +optional
	Interfaces []InterfaceStatus `json:"interfaces,omitempty"`
	// The guest's operating system, as the guest agent reports it.
	// +optional
	GuestOSInfo *GuestOSInfo `json:"guestOSInfo,omitempty"`
	// The migration that is under way, or was last.
	// +optional
	MigrationState *MigrationState `json:"migrationState,omitempty"`
	// How the instance can be migrated: LiveMigration, or BlockMigration, which copies disks.
	// +optional
	MigrationMethod string `json:"migrationMethod,omitempty"`
	// What migrations go over: Unix.
	// +optional
	MigrationTransport string `json:"migrationTransport,omitempty"`
	// The pod's quality of service class.
	// +optional
	QOSClass *corev1.PodQOSClass `json:"qosClass,omitempty"`
	// The image that the pod was started with.
	// +optional
	LauncherContainerImageVersion string `json:"launcherContainerImageVersion,omitempty"`
	// What runs the guest, by its node's word.
	// +optional
	VMM *VMMStatus `json:"vmm,omitempty"`
	// Name of the node that the instance is to leave.
	// +optional
	EvacuationNodeName string `json:"evacuationNodeName,omitempty"`
	// Names of the nodes of the instance's pods, by the pods' UIDs.
	// +optional
	ActivePods map[types.UID]string `json:"activePods,omitempty"`
	// Which machine the guest was started on; another one may take over its node's name.
	// +optional
	NodeMachine *NodeMachine `json:"nodeMachine,omitempty"`
	// The instance's volumes.
	// +optional
	VolumeStatus []VolumeStatus `json:"volumeStatus,omitempty"`
	// The kernel and initrd that the guest was booted with.
	// +optional
	KernelBootStatus *KernelBootStatus `json:"kernelBootStatus,omitempty"`
	// Whether the guest's file systems are frozen: frozen, or empty.
	// +optional
	FSFreezeStatus string `json:"fsFreezeStatus,omitempty"`
	// What the guest needs of a node beyond its resources.
	// +optional
	TopologyHints *TopologyHints `json:"topologyHints,omitempty"`
	// Name of the ControllerRevision that has the VM's spec that the instance was started with.
	// +optional
	VirtualMachineRevisionName string `json:"virtualMachineRevisionName,omitempty"`
	// User that the VMM runs as.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RuntimeUser int64 `json:"runtimeUser,omitempty"`
	// The guest's vsock context identifier.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	VSOCKCID *int64 `json:"VSOCKCID,omitempty"`
	// The pod's SELinux context.
	// +optional
	SELinuxContext string `json:"selinuxContext,omitempty"`
	// The machine type in use, with its version.
	// +optional
	Machine *Machine `json:"machine,omitempty"`
	// The CPU topology that the guest has now.
	// +optional
	CurrentCPUTopology *CPUTopology `json:"currentCPUTopology,omitempty"`
	// The guest's memory.
	// +optional
	Memory *MemoryStatus `json:"memory,omitempty"`
	// Volumes that are being copied to others.
	// +optional
	MigratedVolumes []MigratedVolume `json:"migratedVolumes,omitempty"`
	// What the guest was saved to, when it ended by stopStrategy Save.
	// +optional
	SavedImage *SavedImage `json:"savedImage,omitempty"`
	// Whether changed blocks of disks are tracked, for incremental backups.
	// +optional
	ChangedBlockTracking *ChangedBlockTrackingStatus `json:"changedBlockTracking,omitempty"`
}

// Phase is where an instance is in its life.
type Phase string

// The phases of an instance. A new one has none.
const (
	PhasePending        Phase = "Pending"
	PhaseScheduling     Phase = "Scheduling"
	PhaseScheduled      Phase = "Scheduled"
	PhaseRunning        Phase = "Running"
	PhaseSucceeded      Phase = "Succeeded"
	PhaseFailed         Phase = "Failed"
	PhaseWaitingForSync Phase = "WaitingForSync"
	PhaseUnknown        Phase = "Unknown"
)

// PhaseTransition is when an instance entered a phase.
type PhaseTransition struct {
	// The phase.
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// When the instance entered it.
	// +optional
	PhaseTransitionTimestamp metav1.Time `json:"phaseTransitionTimestamp,omitzero"`
}

// InterfaceStatus is a network interface of a running guest.
type InterfaceStatus struct {
	// Name of the interface in the specification. Empty if the guest made it.
	// +optional
	Name string `json:"name,omitempty"`
	// An address at which the guest is reached.
	// +optional
	IPAddress string `json:"ipAddress,omitempty"`
	// All addresses, that one first.
	// +optional
	IPAddresses []string `json:"ipAddresses,omitempty"`
	// MAC address.
	// +optional
	MAC string `json:"mac,omitempty"`
	// Name of the interface in the guest.
	// +optional
	InterfaceName string `json:"interfaceName,omitempty"`
	// Name of the interface in the pod.
	// +optional
	PodInterfaceName string `json:"podInterfaceName,omitempty"`
	// Who reported the interface: domain, guest-agent and multus-status, separated by commas.
	// +optional
	InfoSource string `json:"infoSource,omitempty"`
	// Number of the interface's queues.
	// +optional
	QueueCount int32 `json:"queueCount,omitempty"`
	// State of the link: up or down.
	// +optional
	LinkState string `json:"linkState,omitempty"`
}

// GuestOSInfo is the guest's operating system, as the guest agent reports it.
type GuestOSInfo struct {
	// Name, such as Fedora Linux.
	// +optional
	Name string `json:"name,omitempty"`
	// Identifier, such as fedora.
	// +optional
	ID string `json:"id,omitempty"`
	// Name and version, for people.
	// +optional
	PrettyName string `json:"prettyName,omitempty"`
	// Version, with its name.
	// +optional
	Version string `json:"version,omitempty"`
	// Version, as a number.
	// +optional
	VersionID string `json:"versionId,omitempty"`
	// Release of the kernel.
	// +optional
	KernelRelease string `json:"kernelRelease,omitempty"`
	// Version of the kernel.
	// +optional
	KernelVersion string `json:"kernelVersion,omitempty"`
	// Hardware name of the machine, such as x86_64.
	// +optional
	Machine string `json:"machine,omitempty"`
}

// VolumeStatus is a volume of a running instance.
type VolumeStatus struct {
	// Name of the volume.
	Name string `json:"name"`
	// Name of the disk in the guest, such as vda.
	Target string `json:"target"`
	// How far the volume is attached: Pending, Bound, AttachedToNode, MountedToPod, Ready,
	// Detaching, UnMountedFromPod, or how far a memory dump is: MemoryDumpInProgress,
	// MemoryDumpCompleted, MemoryDumpFailed.
	// +optional
	Phase string `json:"phase,omitempty"`
	// Why the volume is in its phase, in a word.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Why the volume is in its phase, in a sentence.
	// +optional
	Message string `json:"message,omitempty"`
	// The claim that the volume is on.
	// +optional
	PersistentVolumeClaimInfo *PersistentVolumeClaimInfo `json:"persistentVolumeClaimInfo,omitempty"`
	// The pod that a volume is attached through which was added to the running instance.
	// +optional
	HotplugVolume *HotplugVolumeStatus `json:"hotplugVolume,omitempty"`
	// Size of the volume, in bytes.
	// +optional
	Size int64 `json:"size,omitempty"`
	// The memory dump on the volume.
	// +optional
	MemoryDumpVolume *MemoryDumpInfo `json:"memoryDumpVolume,omitempty"`
	// Where on the volume the guest's memory is saved to, or resumed from.
	// +optional
	HibernationInfo *HibernationInfo `json:"hibernationInfo,omitempty"`
	// The container disk that the volume is.
	// +optional
	ContainerDiskVolume *ContainerDiskInfo `json:"containerDiskVolume,omitempty"`
}

// PersistentVolumeClaimInfo is what is known of a volume's claim.
type PersistentVolumeClaimInfo struct {
	// Name of the claim.
	// +optional
	ClaimName string `json:"claimName,omitempty"`
	// Access modes of the claim.
	// +optional
	AccessModes []corev1.PersistentVolumeAccessMode `json:"accessModes,omitempty"`
	// Filesystem or Block.
	// +optional
	VolumeMode *corev1.PersistentVolumeMode `json:"volumeMode,omitempty"`
	// Capacity of the claim.
	// +optional
	Capacity corev1.ResourceList `json:"capacity,omitempty"`
	// What the claim asked for.
	// +optional
	Requests corev1.ResourceList `json:"requests,omitempty"`
	// Whether the disk's blocks are allocated beforehand.
	// +optional
	Preallocated bool `json:"preallocated,omitempty"`
	// The part of the claim that its file system takes, from 0 to 1.
	// +optional
	// +kubebuilder:validation:Pattern=`^(0(\.[0-9]{1,3})?|1)$`
	FilesystemOverhead *string `json:"filesystemOverhead,omitempty"`
}

// HotplugVolumeStatus is the pod that a volume is attached through.
type HotplugVolumeStatus struct {
	// Name of the pod.
	// +optional
	AttachPodName string `json:"attachPodName,omitempty"`
	// UID of the pod.
	// +optional
	AttachPodUID types.UID `json:"attachPodUID,omitempty"`
}

// MemoryDumpInfo is a dump of the guest's memory on a volume.
type MemoryDumpInfo struct {
	// When the dump began.
	// +optional
	StartTimestamp *metav1.Time `json:"startTimestamp,omitempty"`
	// When the dump ended.
	// +optional
	EndTimestamp *metav1.Time `json:"endTimestamp,omitempty"`
	// Name of the claim that has the dump.
	// +optional
	ClaimName string `json:"claimName,omitempty"`
	// Name of the dump's file.
	// +optional
	TargetFileName string `json:"targetFileName,omitempty"`
}

// ContainerDiskInfo is what a disk from a container image is known by.
type ContainerDiskInfo struct {
	// Checksum of the disk.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	Checksum int64 `json:"checksum,omitempty"`
}

// KernelBootStatus is the kernel and initrd that the guest was booted with.
type KernelBootStatus struct {
	// The kernel.
	// +optional
	KernelInfo *BootFileInfo `json:"kernelInfo,omitempty"`
	// The initrd.
	// +optional
	InitrdInfo *BootFileInfo `json:"initrdInfo,omitempty"`
}

// BootFileInfo is what a kernel or initrd is known by.
type BootFileInfo struct {
	// Checksum of the file.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	Checksum int64 `json:"checksum,omitempty"`
}

// TopologyHints are what a guest needs of a node beyond its resources.
type TopologyHints struct {
	// Frequency of the time stamp counter that the guest was started with, in hertz.
	// +optional
	TSCFrequency *int64 `json:"tscFrequency,omitempty"`
}

// MemoryStatus is the memory that a guest has.
type MemoryStatus struct {
	// Memory that the guest was booted with.
	// +optional
	GuestAtBoot *resource.Quantity `json:"guestAtBoot,omitempty"`
	// Memory that the guest has now.
	// +optional
	GuestCurrent *resource.Quantity `json:"guestCurrent,omitempty"`
	// Memory that the guest was asked to have.
	// +optional
	GuestRequested *resource.Quantity `json:"guestRequested,omitempty"`
	// Memory that the pod has beside the guest's.
	// +optional
	MemoryOverhead *resource.Quantity `json:"memoryOverhead,omitempty"`
}

// VMMStatus is what runs a guest.
type VMMStatus struct {
	// Name of the VMM: qemu, cloud-hypervisor.
	// +optional
	Name string `json:"name,omitempty"`
	// Version of the VMM.
	// +optional
	Version string `json:"version,omitempty"`
	// Hypervisor that the VMM uses: kvm, mshv, emulation.
	// +optional
	Hypervisor string `json:"hypervisor,omitempty"`
}

// NodeMachine is a machine that is a node.
type NodeMachine struct {
	// UID of the Node object.
	NodeUID types.UID `json:"nodeUID"`
	// Hash of the hardware's UUID in the Node's nodeInfo.
	// +optional
	Identity string `json:"identity,omitempty"`
}
