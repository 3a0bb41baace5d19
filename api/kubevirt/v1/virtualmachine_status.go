package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// VirtualMachineStatus is a VM as it is.
type VirtualMachineStatus struct {
	// Name of the VirtualMachineSnapshot that is being taken. While it is set the VM's volumes
	// can't be changed.
	// +optional
	SnapshotInProgress *string `json:"snapshotInProgress,omitempty"`
	// Name of the VirtualMachineRestore that is being carried out.
	// +optional
	RestoreInProgress *string `json:"restoreInProgress,omitempty"`
	// Whether the VM has an instance that has not ended.
	// +optional
	Created bool `json:"created,omitempty"`
	// Whether the instance is running and ready.
	// +optional
	Ready bool `json:"ready,omitempty"`
	// What the VM does now, in a word, for people: Stopped, Provisioning, Starting, Running,
	// Paused and the like. Programs read conditions.
	// +optional
	// +kubebuilder:default=Stopped
	PrintableStatus PrintableStatus `json:"printableStatus,omitempty"`
	// The VM's conditions, and those of its instance.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
	// Starts and stops that were requested and not yet carried out. The first is next.
	// +optional
	StateChangeRequests []StateChangeRequest `json:"stateChangeRequests,omitempty"`
	// Volumes that are to be attached or detached.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	VolumeRequests []VolumeRequest `json:"volumeRequests,omitempty"`
	// Which volumes a snapshot can have.
	// +optional
	VolumeSnapshotStatuses []VolumeSnapshotStatus `json:"volumeSnapshotStatuses,omitempty"`
	// Starts that have failed in a row, and when the next one is tried.
	// +optional
	StartFailure *StartFailure `json:"startFailure,omitempty"`
	// The memory dump that was requested last.
	// +optional
	MemoryDumpRequest *MemoryDumpRequest `json:"memoryDumpRequest,omitempty"`
	// The hibernation that was requested last. Unset once the VM runs again.
	// +optional
	HibernationStatus *HibernationStatus `json:"hibernationStatus,omitempty"`
	// Not a field: hibernationStatus is.
	// +optional
	// +kubebuilder:validation:XValidation:rule="false",message="it is written hibernationStatus"
	HibernationStatusMisspelt *NoField `json:"HibernationStatus,omitempty"`
	// How far a resume from hibernation is.
	// +optional
	ResumeStatus *ResumeStatus `json:"resumeStatus,omitempty"`
	// The generation of the VM that its instance was started with.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// The VM's newest generation that the controller has seen.
	// +optional
	DesiredGeneration int64 `json:"desiredGeneration,omitempty"`
	// The run strategy that the controller acted on last.
	// +optional
	RunStrategy RunStrategy `json:"runStrategy,omitempty"`
	// How far an exchange of volumes is.
	// +optional
	VolumeUpdateState *VolumeUpdateState `json:"volumeUpdateState,omitempty"`
	// Whether changed blocks of the VM's disks are tracked, for incremental backups.
	// +optional
	ChangedBlockTracking *ChangedBlockTrackingStatus `json:"changedBlockTracking,omitempty"`
	// The instance type in use.
	// +optional
	InstancetypeRef *InstancetypeStatusRef `json:"instancetypeRef,omitempty"`
	// The preference in use.
	// +optional
	PreferenceRef *InstancetypeStatusRef `json:"preferenceRef,omitempty"`
}

// PrintableStatus is what a VM does now, in a word.
type PrintableStatus string

// The words that a VM's state is printed as.
const (
	StatusStopped                 PrintableStatus = "Stopped"
	StatusProvisioning            PrintableStatus = "Provisioning"
	StatusStarting                PrintableStatus = "Starting"
	StatusRunning                 PrintableStatus = "Running"
	StatusPaused                  PrintableStatus = "Paused"
	StatusStopping                PrintableStatus = "Stopping"
	StatusTerminating             PrintableStatus = "Terminating"
	StatusCrashLoopBackOff        PrintableStatus = "CrashLoopBackOff"
	StatusMigrating               PrintableStatus = "Migrating"
	StatusHibernating             PrintableStatus = "Hibernating"
	StatusHibernated              PrintableStatus = "Hibernated"
	StatusResuming                PrintableStatus = "Resuming"
	StatusErrorUnschedulable      PrintableStatus = "ErrorUnschedulable"
	StatusErrImagePull            PrintableStatus = "ErrImagePull"
	StatusImagePullBackOff        PrintableStatus = "ImagePullBackOff"
	StatusErrorPVCNotFound        PrintableStatus = "ErrorPvcNotFound"
	StatusDataVolumeError         PrintableStatus = "DataVolumeError"
	StatusWaitingForVolumeBinding PrintableStatus = "WaitingForVolumeBinding"
	StatusWaitingForReceiver      PrintableStatus = "WaitingForReceiver"
	StatusUnknown                 PrintableStatus = "Unknown"
)

// StateChangeRequest is a start or stop that was requested.
type StateChangeRequest struct {
	// Start or Stop.
	Action StateChange `json:"action"`
	// Options of the request, such as paused.
	// +optional
	Data map[string]string `json:"data,omitempty"`
	// UID of the instance that is meant. A stop of another one is void.
	// +optional
	UID *types.UID `json:"uid,omitempty"`
}

// StateChange is what a request asks for.
type StateChange string

// What may be requested.
const (
	StateChangeStart StateChange = "Start"
	StateChangeStop  StateChange = "Stop"
)

// VolumeRequest asks for one volume to be attached or detached.
type VolumeRequest struct {
	// The volume to attach.
	// +optional
	AddVolumeOptions *AddVolumeOptions `json:"addVolumeOptions,omitempty"`
	// The volume to detach.
	// +optional
	RemoveVolumeOptions *RemoveVolumeOptions `json:"removeVolumeOptions,omitempty"`
}

// AddVolumeOptions are a volume to attach, and how.
type AddVolumeOptions struct {
	// Name of the volume, and of its disk.
	Name string `json:"name"`
	// The disk that the guest sees.
	Disk *Disk `json:"disk"`
	// What the volume is made of.
	VolumeSource *HotplugVolumeSource `json:"volumeSource"`
	// All: check the request, and change nothing.
	// +optional
	DryRun []string `json:"dryRun,omitempty"`
}

// RemoveVolumeOptions are a volume to detach.
type RemoveVolumeOptions struct {
	// Name of the volume.
	Name string `json:"name"`
	// All: check the request, and change nothing.
	// +optional
	DryRun []string `json:"dryRun,omitempty"`
}

// VolumeSnapshotStatus says whether a snapshot can have a volume.
type VolumeSnapshotStatus struct {
	// Name of the volume.
	Name string `json:"name"`
	// Whether a snapshot can have it.
	Enabled bool `json:"enabled"`
	// Why not.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// StartFailure counts starts that have failed in a row.
type StartFailure struct {
	// Starts in a row whose instance ended before it ran.
	// +optional
	ConsecutiveFailCount int `json:"consecutiveFailCount,omitempty"`
	// UID of the instance that failed last.
	// +optional
	LastFailedVMIUID types.UID `json:"lastFailedVMIUID,omitempty"`
	// When the next start is tried.
	// +optional
	RetryAfterTimestamp *metav1.Time `json:"retryAfterTimestamp,omitempty"`
}

// MemoryDumpRequest is a dump of the guest's memory to a claim.
type MemoryDumpRequest struct {
	// Name of the PersistentVolumeClaim that the dump is written to.
	ClaimName string `json:"claimName"`
	// How far the dump is: Associating, InProgress, Unmounting, Completed, Dissociating or
	// Failed.
	Phase string `json:"phase"`
	// Whether the claim is to be detached from the VM.
	// +optional
	Remove bool `json:"remove,omitempty"`
	// When the dump began.
	// +optional
	StartTimestamp *metav1.Time `json:"startTimestamp,omitempty"`
	// When the dump ended.
	// +optional
	EndTimestamp *metav1.Time `json:"endTimestamp,omitempty"`
	// Name of the dump's file.
	// +optional
	FileName *string `json:"fileName,omitempty"`
	// Why the dump failed.
	// +optional
	Message string `json:"message,omitempty"`
}

// VolumeUpdateState is how far an exchange of volumes is.
type VolumeUpdateState struct {
	// How far the copy to other volumes is.
	// +optional
	VolumeMigrationState *VolumeMigrationState `json:"volumeMigrationState,omitempty"`
}

// VolumeMigrationState is how far the copy of volumes to other ones is.
type VolumeMigrationState struct {
	// Volumes that are being copied.
	// +optional
	MigratedVolumes []MigratedVolume `json:"migratedVolumes,omitempty"`
}

// InstancetypeStatusRef is an instance type or preference in use.
type InstancetypeStatusRef struct {
	// Name of the object.
	// +optional
	Name string `json:"name,omitempty"`
	// Kind of the object.
	// +optional
	Kind string `json:"kind,omitempty"`
	// The ControllerRevision that holds the object as it was when first used.
	// +optional
	ControllerRevisionRef *ControllerRevisionRef `json:"controllerRevisionRef,omitempty"`
	// Name of the volume whose labels named it.
	// +optional
	InferFromVolume string `json:"inferFromVolume,omitempty"`
	// What happens if the volume's labels name none.
	// +optional
	InferFromVolumeFailurePolicy *InferFromVolumeFailurePolicy `json:"inferFromVolumeFailurePolicy,omitempty"`
}

// ControllerRevisionRef names a ControllerRevision in the VM's namespace.
type ControllerRevisionRef struct {
	// Name of the ControllerRevision.
	// +optional
	Name string `json:"name,omitempty"`
}
