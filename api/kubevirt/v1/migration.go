package v1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// MigrationState is a migration of an instance to another node.
type MigrationState struct {
	// When the migration began.
	// +optional
	StartTimestamp *metav1.Time `json:"startTimestamp,omitempty"`
	// When the migration ended.
	// +optional
	EndTimestamp *metav1.Time `json:"endTimestamp,omitempty"`
	// When the target was ready for the guest.
	// +optional
	TargetNodeDomainReadyTimestamp *metav1.Time `json:"targetNodeDomainReadyTimestamp,omitempty"`
	// Whether the guest was seen on the target.
	// +optional
	TargetNodeDomainDetected bool `json:"targetNodeDomainDetected,omitempty"`
	// Address of the target.
	// +optional
	TargetNodeAddress string `json:"targetNodeAddress,omitempty"`
	// The target's ports, and what each is for.
	// +optional
	TargetDirectMigrationNodePorts map[string]int `json:"targetDirectMigrationNodePorts,omitempty"`
	// Node that the guest goes to.
	// +optional
	TargetNode string `json:"targetNode,omitempty"`
	// Pod that the guest goes to.
	// +optional
	TargetPod string `json:"targetPod,omitempty"`
	// UID of the pod that volumes are attached through at the target.
	// +optional
	TargetAttachmentPodUID types.UID `json:"targetAttachmentPodUID,omitempty"`
	// Node that the guest comes from.
	// +optional
	SourceNode string `json:"sourceNode,omitempty"`
	// Pod that the guest comes from.
	// +optional
	SourcePod string `json:"sourcePod,omitempty"`
	// Whether the migration has ended.
	// +optional
	Completed bool `json:"completed,omitempty"`
	// Whether the migration has failed.
	// +optional
	Failed bool `json:"failed,omitempty"`
	// Whether the migration is to be cancelled.
	// +optional
	AbortRequested bool `json:"abortRequested,omitempty"`
	// How far the cancellation is: Aborting, Succeeded or Failed.
	// +optional
	AbortStatus string `json:"abortStatus,omitempty"`
	// Why the migration has failed.
	// +optional
	FailureReason string `json:"failureReason,omitempty"`
	// UID of the VirtualMachineInstanceMigration.
	// +optional
	MigrationUID types.UID `json:"migrationUid,omitempty"`
	// How memory is copied: PreCopy, PostCopy or Paused.
	// +optional
	Mode string `json:"mode,omitempty"`
	// Name of the MigrationPolicy in use.
	// +optional
	MigrationPolicyName *string `json:"migrationPolicyName,omitempty"`
	// The limits in use.
	// +optional
	MigrationConfiguration *EffectiveMigrationConfiguration `json:"migrationConfiguration,omitempty"`
	// Processors that the guest is pinned to at the target.
	// +optional
	TargetCPUSet []int `json:"targetCPUSet,omitempty"`
	// The target's NUMA topology, as JSON.
	// +optional
	TargetNodeTopology string `json:"targetNodeTopology,omitempty"`
	// Claim that keeps the guest's TPM and firmware state at the source.
	// +optional
	SourcePersistentStatePVCName string `json:"sourcePersistentStatePVCName,omitempty"`
	// Claim that keeps the guest's TPM and firmware state at the target.
	// +optional
	TargetPersistentStatePVCName string `json:"targetPersistentStatePVCName,omitempty"`
	// The source's side.
	// +optional
	SourceState *MigrationSourceState `json:"sourceState,omitempty"`
	// The target's side.
	// +optional
	TargetState *MigrationTargetState `json:"targetState,omitempty"`
	// The network that the migration goes over: Pod or Migration.
	// +optional
	MigrationNetworkType string `json:"migrationNetworkType,omitempty"`
	// Memory that the target pod has beside the guest's.
	// +optional
	TargetMemoryOverhead *resource.Quantity `json:"targetMemoryOverhead,omitempty"`
}

// MigrationEndState is what source and target of a migration have in common.
type MigrationEndState struct {
	// Name of the node.
	// +optional
	Node string `json:"node,omitempty"`
	// Name of the pod.
	// +optional
	Pod string `json:"pod,omitempty"`
	// UID of the migration's object in this cluster.
	// +optional
	MigrationUID types.UID `json:"migrationUID,omitempty"`
	// Name of the guest to the VMM.
	// +optional
	DomainName *string `json:"domainName,omitempty"`
	// Namespace of the instance.
	// +optional
	DomainNamespace *string `json:"domainNamespace,omitempty"`
	// Address at which the other cluster's state is read.
	// +optional
	SyncAddress *string `json:"syncAddress,omitempty"`
	// Claim that keeps the guest's TPM and firmware state.
	// +optional
	PersistentStatePVCName *string `json:"persistentStatePVCName,omitempty"`
	// The pod's SELinux context.
	// +optional
	SELinuxContext string `json:"selinuxContext,omitempty"`
	// UID of the instance.
	// +optional
	VirtualMachineInstanceUID *types.UID `json:"virtualMachineInstanceUID,omitempty"`
}

// MigrationSourceState is the side of a migration that the guest comes from.
type MigrationSourceState struct {
	MigrationEndState `json:",inline"`
	// Labels that the target's node must have.
	// +optional
	NodeSelectors map[string]string `json:"nodeSelectors,omitempty"`
}

// MigrationTargetState is the side of a migration that the guest goes to.
type MigrationTargetState struct {
	MigrationEndState `json:",inline"`
	// When the target was ready for the guest.
	// +optional
	DomainReadyTimestamp *metav1.Time `json:"domainReadyTimestamp,omitempty"`
	// Whether the guest was seen here.
	// +optional
	DomainDetected bool `json:"domainDetected,omitempty"`
	// Address of the node.
	// +optional
	NodeAddress *string `json:"nodeAddress,omitempty"`
	// The target's ports, and what each is for.
	// +optional
	DirectMigrationNodePorts map[string]int `json:"directMigrationNodePorts,omitempty"`
	// UID of the pod that volumes are attached through.
	// +optional
	AttachmentPodUID *types.UID `json:"attachmentPodUID,omitempty"`
	// Processors that the guest is pinned to.
	// +optional
	CPUSet []int `json:"cpuSet,omitempty"`
	// The node's NUMA topology, as JSON.
	// +optional
	NodeTopology *string `json:"nodeTopology,omitempty"`
}

// MigratedVolume is a volume whose data goes to another claim.
type MigratedVolume struct {
	// Name of the volume.
	VolumeName string `json:"volumeName"`
	// The claim that the data comes from.
	// +optional
	SourcePVCInfo *PersistentVolumeClaimInfo `json:"sourcePVCInfo,omitempty"`
	// The claim that the data goes to.
	// +optional
	DestinationPVCInfo *PersistentVolumeClaimInfo `json:"destinationPVCInfo,omitempty"`
}

// MigrationConfiguration limits migrations.
type MigrationConfiguration struct {
	// Key of the taint whose nodes are drained of VMs.
	// +optional
	NodeDrainTaintKey *string `json:"nodeDrainTaintKey,omitempty"`
	// Migrations that may leave a node at once. Defaults to 2.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ParallelOutboundMigrationsPerNode *int32 `json:"parallelOutboundMigrationsPerNode,omitempty"`
	// Migrations that may be under way in the cluster at once. Defaults to 5.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ParallelMigrationsPerCluster *int32 `json:"parallelMigrationsPerCluster,omitempty"`
	// Whether a guest is slowed down if it writes memory faster than that is copied.
	// +optional
	AllowAutoConverge *bool `json:"allowAutoConverge,omitempty"`
	// Bytes a second that a migration may take. 0 is no limit.
	// +optional
	BandwidthPerMigration *resource.Quantity `json:"bandwidthPerMigration,omitempty"`
	// Seconds a migration may take for each GiB of memory and disks. Defaults to 150.
	// +optional
	CompletionTimeoutPerGiB *int64 `json:"completionTimeoutPerGiB,omitempty"`
	// Longest time that the guest may be paused, in milliseconds.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2000000
	MaxDowntimeMs *int64 `json:"maxDowntimeMs,omitempty"`
	// Seconds without progress after which a migration is cancelled. Defaults to 150.
	// +optional
	ProgressTimeout *int64 `json:"progressTimeout,omitempty"`
	// Seconds a migration waits for utility volumes to be detached. Defaults to 150.
	// +optional
	UtilityVolumesTimeout *int64 `json:"utilityVolumesTimeout,omitempty"`
	// Whether migrations that could lose data are allowed.
	// +optional
	UnsafeMigrationOverride *bool `json:"unsafeMigrationOverride,omitempty"`
	// Whether a guest may go on at the target before its memory is all there.
	// +optional
	AllowPostCopy *bool `json:"allowPostCopy,omitempty"`
	// Whether a guest may be paused or go on by post-copy for a migration to end.
	// +optional
	AllowWorkloadDisruption *bool `json:"allowWorkloadDisruption,omitempty"`
	// Whether migrations go over the network in the clear.
	// +optional
	DisableTLS *bool `json:"disableTLS,omitempty"`
	// Name of the NetworkAttachmentDefinition of the network that migrations go over.
	// +optional
	Network *string `json:"network,omitempty"`
	// Whether the target pod has the SELinux level of the source pod.
	// +optional
	MatchSELinuxLevelOnMigration *bool `json:"matchSELinuxLevelOnMigration,omitempty"`
}

// EffectiveMigrationConfiguration is what limits one migration.
type EffectiveMigrationConfiguration struct {
	MigrationConfiguration `json:",inline"`
	// Settings under trial, which may change or go.
	// +optional
	Experimental *ExperimentalMigrationOptions `json:"experimental,omitempty"`
}

// ExperimentalMigrationOptions are settings of migrations under trial.
type ExperimentalMigrationOptions struct {
	// How a migration is found to make no progress.
	// +optional
	StallDetector *StallDetectorOptions `json:"stallDetector,omitempty"`
	// How the time grows that the guest may be paused.
	// +optional
	DowntimeTuning *DowntimeTuningOptions `json:"downtimeTuning,omitempty"`
	// How memory is compressed on its way: none or zstd.
	// +optional
	// +kubebuilder:validation:Enum=none;zstd
	Compression *string `json:"compression,omitempty"`
}

// StallDetectorOptions say when a migration makes no progress.
type StallDetectorOptions struct {
	// Percent by which the rest must shrink to count as progress.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	StallMargin *int64 `json:"stallMargin,omitempty"`
	// Weight of the newest value in the moving average, from 0 to 1.
	// +optional
	EWMAAlpha *resource.Quantity `json:"ewmaAlpha,omitempty"`
	// Seconds without progress after which a migration stalls.
	// +optional
	// +kubebuilder:validation:Minimum=0
	StallProgressTimeout *int64 `json:"stallProgressTimeout,omitempty"`
	// Seconds that the switch to the target may take.
	// +optional
	// +kubebuilder:validation:Minimum=0
	SwitchoverTimeout *int64 `json:"switchoverTimeout,omitempty"`
	// Factor on the estimated time within which pre-copy counts as possible.
	// +optional
	PrecopyPossibleFactor *resource.Quantity `json:"precopyPossibleFactor,omitempty"`
	// Factor by which the wait for progress shrinks each time.
	// +optional
	PatienceWindowDecayFactor *resource.Quantity `json:"patienceWindowDecayFactor,omitempty"`
	// Whether the switch waits for a moment at which little is left to copy.
	// +optional
	SearchLocalMinima *bool `json:"searchLocalMinima,omitempty"`
	// Factor on the time that a migration may take.
	// +optional
	CompletionTimeoutFactor *resource.Quantity `json:"completionTimeoutFactor,omitempty"`
}

// DowntimeTuningOptions say how the time grows that a guest may be paused.
type DowntimeTuningOptions struct {
	// Milliseconds it may be paused at first.
	// +optional
	// +kubebuilder:validation:Minimum=1
	InitialMs *int64 `json:"initialMs,omitempty"`
	// Steps to the longest time.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Steps *int32 `json:"steps,omitempty"`
	// Pass over memory at which the first step is taken.
	// +optional
	// +kubebuilder:validation:Minimum=1
	StartAfterIteration *int64 `json:"startAfterIteration,omitempty"`
	// Seconds between two steps.
	// +optional
	// +kubebuilder:validation:Minimum=1
	CooldownSeconds *int32 `json:"cooldownSeconds,omitempty"`
}
