package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VirtualMachine is a VM that outlives its runs: a run strategy, and the template of the
// VirtualMachineInstance that each run has.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=vm;vms,categories=all
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=vmlet"
// +kubebuilder:metadata:labels="vmlet.io/definition="
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.printableStatus",description="What the VM does now, in a word"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status"
type VirtualMachine struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`
	// The VM as its user wants it.
	Spec VirtualMachineSpec `json:"spec"`
	// The VM as it is. Written by the controller alone.
	// +optional
	Status VirtualMachineStatus `json:"status,omitzero"`
}

// VirtualMachineList is a list of VirtualMachines.
//
// +kubebuilder:object:root=true
type VirtualMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []VirtualMachine `json:"items"`
}

// VirtualMachineSpec is a VM as its user wants it.
//
// +kubebuilder:validation:XValidation:rule="has(self.running) != has(self.runStrategy)",message="exactly one of runStrategy and running has to be set"
type VirtualMachineSpec struct {
	// Deprecated: use runStrategy. True is Always, false is Halted.
	// +optional
	Running *bool `json:"running,omitempty"`
	// When the VM runs: Always (restarted whenever it ends), RerunOnFailure (restarted when it
	// fails), Manual (started and stopped on request alone), Once (started once, never
	// restarted), Halted (off), WaitAsReceiver (waits for a migration from another cluster), or
	// Hibernate (off, with its memory saved).
	// +optional
	RunStrategy *RunStrategy `json:"runStrategy,omitempty"`
	// How the VM hibernates when its run strategy becomes Hibernate. What it leaves open is
	// taken from the cluster's defaultHibernateConfig.
	// +optional
	HibernateStrategy *HibernateStrategy `json:"hibernateStrategy,omitempty"`
	// Not a field: hibernateStrategy is.
	// +optional
	// +kubebuilder:validation:XValidation:rule="false",message="it is written hibernateStrategy"
	HibernateStrategyMisspelt *NoField `json:"HibernateStrategy,omitempty"`
	// How a start treats the memory saved by a hibernation: Restore resumes from it, Boot
	// discards it. If unset, the cluster's default applies.
	// +optional
	StartStrategy *StartStrategy `json:"startStrategy,omitempty"`
	// Not a field: startStrategy is.
	// +optional
	// +kubebuilder:validation:XValidation:rule="false",message="it is written startStrategy"
	StartStrategyMisspelt *string `json:"StartStrategy,omitempty"`
	// The instance type that CPU, memory and what belongs to them come from. Fields it sets
	// can't be set in the template.
	// +optional
	Instancetype *InstancetypeMatcher `json:"instancetype,omitempty"`
	// The preference that unset fields of the template are filled from.
	// +optional
	Preference *PreferenceMatcher `json:"preference,omitempty"`
	// The VirtualMachineInstance of each run.
	Template *VirtualMachineInstanceTemplateSpec `json:"template"`
	// DataVolumes made with the VM, owned by it and deleted with it. Each has to be used by a
	// volume of the template.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	DataVolumeTemplates []DataVolumeTemplateSpec `json:"dataVolumeTemplates,omitempty"`
	// What happens when a volume of a running VM is exchanged: Replacement takes effect at the
	// next start, Migration copies the data to the new volume while the guest runs.
	// +optional
	UpdateVolumesStrategy *UpdateVolumesStrategy `json:"updateVolumesStrategy,omitempty"`
}

// RunStrategy says when a VM runs. Admission checks the value, not the schema, as it
// understands other spellings.
type RunStrategy string

// The run strategies.
const (
	RunStrategyAlways         RunStrategy = "Always"
	RunStrategyRerunOnFailure RunStrategy = "RerunOnFailure"
	RunStrategyManual         RunStrategy = "Manual"
	RunStrategyOnce           RunStrategy = "Once"
	RunStrategyHalted         RunStrategy = "Halted"
	RunStrategyWaitAsReceiver RunStrategy = "WaitAsReceiver"
	RunStrategyHibernate      RunStrategy = "Hibernate"
)

// UpdateVolumesStrategy says what an exchanged volume means for a running VM.
//
// +kubebuilder:validation:Enum=Migration;Replacement
type UpdateVolumesStrategy string

// The strategies for exchanged volumes.
const (
	UpdateVolumesMigration   UpdateVolumesStrategy = "Migration"
	UpdateVolumesReplacement UpdateVolumesStrategy = "Replacement"
)

// VirtualMachineInstanceTemplateSpec is the instance that each run of a VM has.
type VirtualMachineInstanceTemplateSpec struct {
	// Labels and annotations of the instance and of its pod. Unknown fields are kept.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	metav1.ObjectMeta `json:"metadata,omitzero"`
	// The instance.
	// +optional
	Spec VirtualMachineInstanceSpec `json:"spec"`
}

// InstancetypeMatcher names an instance type.
type InstancetypeMatcher struct {
	// Name of the instance type.
	// +optional
	Name string `json:"name,omitempty"`
	// Kind of the instance type: VirtualMachineClusterInstancetype (the default) or
	// VirtualMachineInstancetype.
	// +optional
	Kind string `json:"kind,omitempty"`
	// Name of the ControllerRevision that holds the instance type as it was when first used.
	// +optional
	RevisionName string `json:"revisionName,omitempty"`
	// Name of a volume of the template whose labels name the instance type.
	// +optional
	InferFromVolume string `json:"inferFromVolume,omitempty"`
	// What happens if the volume's labels name none: Reject (the default) refuses the VM, Ignore
	// goes on without.
	// +optional
	InferFromVolumeFailurePolicy *InferFromVolumeFailurePolicy `json:"inferFromVolumeFailurePolicy,omitempty"`
}

// PreferenceMatcher names a preference.
type PreferenceMatcher struct {
	// Name of the preference.
	// +optional
	Name string `json:"name,omitempty"`
	// Kind of the preference: VirtualMachineClusterPreference (the default) or
	// VirtualMachinePreference.
	// +optional
	Kind string `json:"kind,omitempty"`
	// Name of the ControllerRevision that holds the preference as it was when first used.
	// +optional
	RevisionName string `json:"revisionName,omitempty"`
	// Name of a volume of the template whose labels name the preference.
	// +optional
	InferFromVolume string `json:"inferFromVolume,omitempty"`
	// What happens if the volume's labels name none: Reject (the default) refuses the VM, Ignore
	// goes on without.
	// +optional
	InferFromVolumeFailurePolicy *InferFromVolumeFailurePolicy `json:"inferFromVolumeFailurePolicy,omitempty"`
}

// InferFromVolumeFailurePolicy says what follows if a volume's labels name nothing.
//
// +kubebuilder:validation:Enum=Reject;Ignore
type InferFromVolumeFailurePolicy string

// The failure policies.
const (
	InferFromVolumeReject InferFromVolumeFailurePolicy = "Reject"
	InferFromVolumeIgnore InferFromVolumeFailurePolicy = "Ignore"
)
