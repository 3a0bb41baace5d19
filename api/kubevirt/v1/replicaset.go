package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KindReplicaSet is the kind of VirtualMachineInstanceReplicaSets.
const KindReplicaSet = "VirtualMachineInstanceReplicaSet"

// VirtualMachineInstanceReplicaSet is a number of VirtualMachineInstances of one template, which keep nothing: one that
// has ended is replaced.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=vmirs;vmirss,categories=all
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.labelSelector
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=vmlet"
// +kubebuilder:metadata:labels="vmlet.io/definition="
// +kubebuilder:printcolumn:name="Desired",type="integer",JSONPath=".spec.replicas",description="Instances that the set is to have"
// +kubebuilder:printcolumn:name="Current",type="integer",JSONPath=".status.replicas",description="Instances that it has"
// +kubebuilder:printcolumn:name="Ready",type="integer",JSONPath=".status.readyReplicas",description="Instances that run and are ready"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type VirtualMachineInstanceReplicaSet struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`
	// The set as its user wants it.
	Spec VirtualMachineInstanceReplicaSetSpec `json:"spec"`
	// The set as it is. Written by the controller alone.
	// +optional
	Status VirtualMachineInstanceReplicaSetStatus `json:"status,omitzero"`
}

// VirtualMachineInstanceReplicaSetList is a list of VirtualMachineInstanceReplicaSets.
//
// +kubebuilder:object:root=true
type VirtualMachineInstanceReplicaSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []VirtualMachineInstanceReplicaSet `json:"items"`
}

// VirtualMachineInstanceReplicaSetSpec is a set as its user wants it.
type VirtualMachineInstanceReplicaSetSpec struct {
	// Instances that the set is to have. Defaults to 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`
	// Instances that match are the set's. It has to match the template's labels.
	Selector *metav1.LabelSelector `json:"selector"`
	// The instance that is made.
	Template *VirtualMachineInstanceTemplateSpec `json:"template"`
	// While true, the set makes and removes nothing.
	// +optional
	Paused bool `json:"paused,omitempty"`
}

// VirtualMachineInstanceReplicaSetStatus is a set as it is.
type VirtualMachineInstanceReplicaSetStatus struct {
	// The set's generation that this status is of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Instances that the set has, that have not ended and are not being deleted.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`
	// Instances that run and are ready.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`
	// ReplicaFailure and ReplicaPaused.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Conditions []Condition `json:"conditions,omitempty"`
	// The selector as a text: what autoscalers count.
	// +optional
	LabelSelector string `json:"labelSelector,omitempty"`
}

// The conditions of a set.
const (
	// ReplicaSetFailure: an instance can't be made or removed.
	ReplicaSetFailure = "ReplicaFailure"
	// ReplicaSetPaused: the set is paused.
	ReplicaSetPaused = "ReplicaPaused"
)
