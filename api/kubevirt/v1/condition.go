package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Condition is one aspect of an object's state. It is [metav1.Condition] with the fields that
// KubeVirt's clients write and read beside it, and with fewer that are required.
type Condition struct {
	// What the condition is about, such as Ready.
	Type string `json:"type"`
	// True, False or Unknown.
	Status metav1.ConditionStatus `json:"status"`
	// The object's generation that the condition was made from.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// When the condition was last looked at.
	// +optional
	// +nullable
	LastProbeTime metav1.Time `json:"lastProbeTime,omitzero"`
	// When the condition's status last changed.
	// +optional
	// +nullable
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`
	// Why, in a word, for programs.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Why, in a sentence, for people.
	// +optional
	Message string `json:"message,omitempty"`
}

// Types of conditions of a VirtualMachine, which has its instance's, too.
const (
	ConditionReady                  = "Ready"
	ConditionFailure                = "Failure"
	ConditionRestartRequired        = "RestartRequired"
	ConditionManualRecoveryRequired = "ManualRecoveryRequired"
	// ConditionHibernated is True while the VM is off with its guest saved, and False where it was
	// to be and there was nothing to save.
	ConditionHibernated = "Hibernated"
)

// Types of conditions of a VirtualMachineInstance, with ConditionReady.
const (
	ConditionProvisioning                  = "Provisioning"
	ConditionSynchronized                  = "Synchronized"
	ConditionPaused                        = "Paused"
	ConditionAgentConnected                = "AgentConnected"
	ConditionAgentVersionNotSupported      = "AgentVersionNotSupported"
	ConditionAccessCredentialsSynchronized = "AccessCredentialsSynchronized"
	ConditionLiveMigratable                = "LiveMigratable"
	ConditionStorageLiveMigratable         = "StorageLiveMigratable"
	ConditionHotVCPUChange                 = "HotVCPUChange"
	ConditionHotMemoryChange               = "HotMemoryChange"
	ConditionVolumesChange                 = "VolumesChange"
	ConditionDataVolumesReady              = "DataVolumesReady"
	ConditionMigrationRequired             = "MigrationRequired"
	ConditionEvictionRequested             = "EvictionRequested"
	ConditionSoftwareEmulation             = "SoftwareEmulation"
	// ConditionHibernationInProgress and ConditionHibernationRestoreInProgress are an instance's
	// and its VirtualMachine's.
	ConditionHibernationInProgress        = "HibernationInProgress"
	ConditionHibernationRestoreInProgress = "HibernationRestoreInProgress"
)

// Types of conditions of a KubeVirt, with ConditionSynchronized.
const (
	ConditionCreated     = "Created"
	ConditionAvailable   = "Available"
	ConditionProgressing = "Progressing"
	ConditionDegraded    = "Degraded"
)

// FindCondition returns the condition of a type, or nil if there is none.
func FindCondition(all []Condition, kind string) *Condition {
	for n := range all {
		if all[n].Type == kind {
			return &all[n]
		}
	}
	return nil
}

// SetTransitionTimes sets in each condition when its status last changed: as in those before
// where the status is the same, else now.
func SetTransitionTimes(conditions, before []Condition, now metav1.Time) {
	for n := range conditions {
		c := &conditions[n]
		c.LastTransitionTime = now
		if b := FindCondition(before, c.Type); b != nil && b.Status == c.Status && !b.LastTransitionTime.IsZero() {
			c.LastTransitionTime = b.LastTransitionTime
		}
	}
}
