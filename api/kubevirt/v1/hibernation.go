package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	// Name of the PersistentVolumeClaim that the memory is saved to. If unset, a claim is made
	// for each hibernation and deleted after the resume.
	// +optional
	ClaimName string `json:"claimName,omitempty"`
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
}

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
}

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
	// When this attempt began.
	// +optional
	StartTimestamp *metav1.Time `json:"startTimestamp,omitempty"`
	// When this attempt ended.
	// +optional
	CompletionTimestamp *metav1.Time `json:"completionTimestamp,omitempty"`
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
}
