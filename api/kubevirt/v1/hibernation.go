package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// HibernateStrategy says how a VM hibernates.
type HibernateStrategy struct {
	// Save writes the guest's memory to a claim; SuspendToDisk asks the guest to suspend itself
	// to its own disk.
	// +optional
	Mode string `json:"mode,omitempty"`
	// Seconds after which a hibernation that has not ended is reported by an event. It goes on.
	// +optional
	// +kubebuilder:validation:Minimum=1
	WarningTimeoutSeconds *int32 `json:"warningTimeoutSeconds,omitempty"`
	// Not a field: warningTimeoutSeconds is.
	// +optional
	// +kubebuilder:validation:XValidation:rule="false",message="it is written warningTimeoutSeconds"
	TimeoutSecondsMisspelt *int32 `json:"timeoutSeconds,omitempty"`
	// Name of the PersistentVolumeClaim that the memory is saved to. If unset, a claim is made:
	// one that the VM keeps where hibernateStrategy is set, else one for each hibernation, which
	// is deleted after the resume.
	// +optional
	ClaimName string `json:"claimName,omitempty"`
	// Storage class of a claim that is made. Defaults to the cluster's.
	// +optional
	StorageClassName *string `json:"storageClassName,omitempty"`
}

// The ways to hibernate. Admission checks the value, as it understands other spellings.
const (
	HibernateSave          = "Save"
	HibernateSuspendToDisk = "SuspendToDisk"
)

// HibernateDefaults are what VMs leave open about hibernation.
type HibernateDefaults struct {
	// How VMs hibernate, field by field, where they don't say.
	// +optional
	HibernateStrategy *HibernateStrategyDefaults `json:"hibernateStrategy,omitempty"`
	// How VMs that don't say start after a hibernation: Restore resumes from the saved memory.
	// +optional
	StartStrategy *StartStrategy `json:"startStrategy,omitempty"`
	// Not a field: hibernateStrategy is.
	// +optional
	// +kubebuilder:validation:XValidation:rule="false",message="it is written hibernateStrategy"
	HibernateStrategyMisspelt *NoField `json:"HibernateStrategy,omitempty"`
	// Not a field: startStrategy is.
	// +optional
	// +kubebuilder:validation:XValidation:rule="false",message="it is written startStrategy"
	StartStrategyMisspelt *string `json:"StartStrategy,omitempty"`
}

// NoField is of what people write in place of a field, and would be dropped without a word if it were not
// declared. A rule refuses it, and names the field.
// +kubebuilder:pruning:PreserveUnknownFields
type NoField struct{}

// HibernateStrategyDefaults says how VMs hibernate that leave it open. It has no claim, as two
// VMs never save to the same one.
type HibernateStrategyDefaults struct {
	// Save or SuspendToDisk.
	// +optional
	Mode string `json:"mode,omitempty"`
	// Seconds after which a hibernation that has not ended is reported by an event.
	// +optional
	// +kubebuilder:validation:Minimum=1
	WarningTimeoutSeconds *int32 `json:"warningTimeoutSeconds,omitempty"`
	// Not a field: warningTimeoutSeconds is.
	// +optional
	// +kubebuilder:validation:XValidation:rule="false",message="it is written warningTimeoutSeconds"
	TimeoutSecondsMisspelt *int32 `json:"timeoutSeconds,omitempty"`
	// Storage class of claims that are made. Defaults to the cluster's default class.
	// +optional
	StorageClassName *string `json:"storageClassName,omitempty"`
}

// Phases of a hibernation, in their order. Any but Completed can become Failed.
const (
	HibernationInitial         = "Initial"
	HibernationPVCCreate       = "PVCCreate"
	HibernationReadyToHotPlug  = "ReadyToHotPlug"
	HibernationHotPlugFinished = "HotPlugFinished"
	HibernationInProgress      = "InProgress"
	HibernationCompleted       = "Completed"
	HibernationFailed          = "Failed"
)

// Phases of a resume, in their order. InProgress can become Failed.
const (
	ResumeInitial    = "Initial"
	ResumeInProgress = "InProgress"
	ResumeCompleted  = "Completed"
	ResumeFailed     = "Failed"
	ResumeCleaned    = "Cleaned"
)

// UtilityHibernation is the type of the utility volume that a guest's memory is saved to.
const UtilityHibernation = "Hibernation"

// HibernationStatus is how far a VM's hibernation is.
type HibernationStatus struct {
	// Save or SuspendToDisk.
	// +optional
	Mode string `json:"mode,omitempty"`
	// How far the hibernation is: Initial, PVCCreate, ReadyToHotPlug, HotPlugFinished,
	// InProgress, Completed or Failed.
	// +optional
	Phase string `json:"phase,omitempty"`
	// Name of the PersistentVolumeClaim that has the saved memory.
	// +optional
	ClaimName string `json:"claimName,omitempty"`
	// Name of the directory on the claim that has the saved memory.
	// +optional
	FileName string `json:"fileName,omitempty"`
	// Why the hibernation failed, in a word. Empty after a success.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Why the hibernation failed, in a sentence.
	// +optional
	Message string `json:"message,omitempty"`
	// When the first attempt of this hibernation began.
	// +optional
	FirstStartTimestamp *metav1.Time `json:"firstStartTimestamp,omitempty"`
	// Whether its attempts together have taken longer than warningTimeoutSeconds, as an event said.
	// +optional
	TimedOut bool `json:"timedOut,omitempty"`
	// When this attempt began.
	// +optional
	StartTimestamp *metav1.Time `json:"startTimestamp,omitempty"`
	// When this attempt ended.
	// +optional
	CompletionTimestamp *metav1.Time `json:"completionTimestamp,omitempty"`
	// How many times this hibernation has failed in a row.
	// +optional
	Failures int32 `json:"failures,omitempty"`
	// When it is tried again after a failure.
	// +optional
	RetryTimestamp *metav1.Time `json:"retryTimestamp,omitempty"`
	// Whether the claim was made for this hibernation alone, and goes with it.
	// +optional
	ClaimCreated bool `json:"claimCreated,omitempty"`
	// Whether the VM was to leave its node: it goes on elsewhere as soon as it is saved.
	// +optional
	Evacuation bool `json:"evacuation,omitempty"`
	// What was saved. Set in phase Completed of mode Save.
	// +optional
	Image *SavedImage `json:"image,omitempty"`
}

// SavedImage is a guest's saved memory, and what a restore needs beside it.
type SavedImage struct {
	// The image's identifier, as its manifest has it.
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`
	// Name of the PersistentVolumeClaim that has it.
	// +kubebuilder:validation:MaxLength=253
	ClaimName string `json:"claimName"`
	// Name of its directory on the claim.
	// +kubebuilder:validation:MaxLength=255
	Directory string `json:"directory"`
	// Bytes that it takes.
	// +optional
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// When it was saved.
	// +optional
	Timestamp *metav1.Time `json:"timestamp,omitempty"`
	// Whether the guest was paused, and is to be again.
	// +optional
	Paused bool `json:"paused,omitempty"`
	// Name of the node that the guest ran on.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// Name of the VMM that saved it.
	// +optional
	VMM string `json:"vmm,omitempty"`
	// Version of the VMM that saved it.
	// +optional
	VMMVersion string `json:"vmmVersion,omitempty"`
	// Hypervisor that it ran under: kvm, mshv or emulation.
	// +optional
	Hypervisor string `json:"hypervisor,omitempty"`
	// Labels that a node has to have for the guest to go on there.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// The pod's images, by digest where that is known.
	// +optional
	// +listType=map
	// +listMapKey=container
	// +kubebuilder:validation:MaxItems=300
	Images []SavedContainerImage `json:"images,omitempty"`
	// Whether the launcher image that saved it can restore it from a claim that is attached to the pod while it
	// is read.
	// +optional
	Attachable bool `json:"attachable,omitempty"`
	// In an instance's restoreFrom: whether its claim is attached like that. Otherwise the pod mounts it for as
	// long as it is there.
	// +optional
	Attached bool `json:"attached,omitempty"`
	// Name of the ControllerRevision that has the VM's spec that the guest was started with.
	// +optional
	VirtualMachineRevisionName string `json:"virtualMachineRevisionName,omitempty"`
}

// SavedContainerImage is the image of a container of the pod that a guest ran in.
type SavedContainerImage struct {
	// Name of the container.
	// +kubebuilder:validation:MaxLength=63
	Container string `json:"container"`
	// The image.
	// +kubebuilder:validation:MaxLength=4096
	Image string `json:"image"`
}

// HibernationInfo is where on a utility volume a guest's memory is saved to or resumed from.
type HibernationInfo struct {
	// Name of the claim.
	// +optional
	ClaimName string `json:"claimName,omitempty"`
	// Name of the directory on it.
	// +optional
	TargetFileName string `json:"targetFileName,omitempty"`
	// When a save that was Queued began, for the first time. An eviction is held for a time from then on.
	// +optional
	StartTimestamp *metav1.Time `json:"startTimestamp,omitempty"`
}

// ResumeStatus is how far a resume from hibernation is.
type ResumeStatus struct {
	// How far the resume is: Initial, InProgress, Completed, Failed or Cleaned.
	// +optional
	Phase string `json:"phase,omitempty"`
	// Why the resume failed, in a word.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Why the resume failed, in a sentence.
	// +optional
	Message string `json:"message,omitempty"`
	// How many times this resume has failed in a row.
	// +optional
	Failures int32 `json:"failures,omitempty"`
	// When it is tried again after a failure. Unset where somebody has to mend something first:
	// it is tried again when the VM's spec or its claim is another.
	// +optional
	RetryTimestamp *metav1.Time `json:"retryTimestamp,omitempty"`
	// UID of the instance that failed last.
	// +optional
	LastFailedVMIUID types.UID `json:"lastFailedVMIUID,omitempty"`
	// The VM's generation with which the resume failed last.
	// +optional
	FailedGeneration int64 `json:"failedGeneration,omitempty"`
	// UID of the claim with which the resume failed last.
	// +optional
	FailedClaimUID types.UID `json:"failedClaimUID,omitempty"`
}
