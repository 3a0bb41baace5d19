package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// VirtualMachinePool is a number of VirtualMachines made from one template.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=vmpool;vmpools,categories=all
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.labelSelector
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=vmlet"
// +kubebuilder:metadata:labels="vmlet.io/definition="
// +kubebuilder:printcolumn:name="Desired",type="integer",JSONPath=".spec.replicas",description="VMs that the pool is to have"
// +kubebuilder:printcolumn:name="Current",type="integer",JSONPath=".status.replicas",description="VMs that it has"
// +kubebuilder:printcolumn:name="Ready",type="integer",JSONPath=".status.readyReplicas",description="VMs that run and are ready"
// +kubebuilder:printcolumn:name="Updated",type="integer",JSONPath=".status.updatedReplicas",description="VMs that have the newest template"
// +kubebuilder:printcolumn:name="Preserved",type="integer",JSONPath=".status.preservedReplicas",description="VMs scaled in whose state is kept"
// +kubebuilder:printcolumn:name="Standby",type="integer",JSONPath=".status.readyStandbyReplicas",description="VMs that stand by for the next scale-out"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type VirtualMachinePool struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`
	// The pool as its user wants it.
	Spec VirtualMachinePoolSpec `json:"spec"`
	// The pool as it is. Written by the controller alone.
	// +optional
	Status VirtualMachinePoolStatus `json:"status,omitzero"`
}

// VirtualMachinePoolList is a list of VirtualMachinePools.
//
// +kubebuilder:object:root=true
type VirtualMachinePoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []VirtualMachinePool `json:"items"`
}

// VirtualMachinePoolSpec is a pool as its user wants it.
type VirtualMachinePoolSpec struct {
	// VMs that the pool is to have.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`
	// Has to match the template's labels. A pool's VMs are those that it owns, whatever their labels.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// The VirtualMachine that each member is made from.
	VirtualMachineTemplate *VirtualMachineTemplateSpec `json:"virtualMachineTemplate"`
	// While true, the pool makes, changes and removes nothing.
	// +optional
	Paused bool `json:"paused,omitempty"`
	// How names within a member are made unique.
	// +optional
	NameGeneration *VirtualMachinePoolNameGeneration `json:"nameGeneration,omitempty"`
	// How many members may be unavailable during an update, as a number or a percentage of replicas (rounded
	// down, at least one). Defaults to 25%.
	// +optional
	// +kubebuilder:validation:XIntOrString
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// Managed, the default: a PodDisruptionBudget has drains leave as many members as updates do. None: there is none.
	// +optional
	DisruptionBudget DisruptionBudget `json:"disruptionBudget,omitempty"`
	// How members are removed. Defaults to proactive.
	// +optional
	ScaleInStrategy *VirtualMachinePoolScaleInStrategy `json:"scaleInStrategy,omitempty"`
	// How members get a changed template. Defaults to proactive.
	// +optional
	UpdateStrategy *VirtualMachinePoolUpdateStrategy `json:"updateStrategy,omitempty"`
	// Replaces members that fail to start again and again, with their disks. Unset: they are left alone.
	// +optional
	Autohealing *VirtualMachinePoolAutohealing `json:"autohealing,omitempty"`
	// VMs that are kept beside those that serve, for the next scale-out. Unset: none.
	// +optional
	Standby *VirtualMachinePoolStandby `json:"standby,omitempty"`
	// What is kept of the state of members scaled in.
	// +optional
	Preservation *VirtualMachinePoolPreservation `json:"preservation,omitempty"`
	// Seconds in which an update has to make progress, or condition Progressing becomes False. Defaults
	// to 600.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ProgressDeadlineSeconds *int32 `json:"progressDeadlineSeconds,omitempty"`
	// Old revisions of the template that are kept, beside those that members have. Defaults to 10.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`
}

// VirtualMachineTemplateSpec is the VirtualMachine that each member is made from.
type VirtualMachineTemplateSpec struct {
	// Labels and annotations of the VMs. Unknown fields are kept.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	metav1.ObjectMeta `json:"metadata,omitzero"`
	// The VM.
	Spec kubevirtv1.VirtualMachineSpec `json:"spec"`
}

// VirtualMachinePoolNameGeneration says how names within a member are made unique.
//
// +kubebuilder:validation:XValidation:rule="!has(self.appendIndexToConfigMapRefs) || !has(self.appendPostfixToConfigMapReferences)",message="appendIndexToConfigMapRefs and appendPostfixToConfigMapReferences are the same: set one"
// +kubebuilder:validation:XValidation:rule="!has(self.appendIndexToSecretRefs) || !has(self.appendPostfixToSecretReferences)",message="appendIndexToSecretRefs and appendPostfixToSecretReferences are the same: set one"
type VirtualMachinePoolNameGeneration struct {
	// Whether a member's index is appended to the names of ConfigMaps that its volumes name.
	// +optional
	AppendIndexToConfigMapRefs *bool `json:"appendIndexToConfigMapRefs,omitempty"`
	// Whether a member's index is appended to the names of Secrets that its volumes and access credentials name.
	// +optional
	AppendIndexToSecretRefs *bool `json:"appendIndexToSecretRefs,omitempty"`
	// The same as appendIndexToConfigMapRefs.
	// +optional
	AppendPostfixToConfigMapReferences *bool `json:"appendPostfixToConfigMapReferences,omitempty"`
	// The same as appendIndexToSecretRefs.
	// +optional
	AppendPostfixToSecretReferences *bool `json:"appendPostfixToSecretReferences,omitempty"`
	// The first member's index. Defaults to 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	StartOrdinal int32 `json:"startOrdinal,omitempty"`
}

// DisruptionBudget says whether a pool keeps a PodDisruptionBudget.
//
// +kubebuilder:validation:Enum=Managed;None
type DisruptionBudget string

// DisruptionBudgetNone: the pool keeps no PodDisruptionBudget.
const DisruptionBudgetNone DisruptionBudget = "None"

// VirtualMachinePoolScaleInStrategy says how members are removed.
//
// +kubebuilder:validation:XValidation:rule="[has(self.unmanaged), has(self.opportunistic), has(self.proactive)].filter(x, x).size() <= 1",message="at most one of unmanaged, opportunistic and proactive can be set"
type VirtualMachinePoolScaleInStrategy struct {
	// The pool removes no member: users delete them.
	// +optional
	Unmanaged *VirtualMachinePoolUnmanaged `json:"unmanaged,omitempty"`
	// The pool removes members that don't run.
	// +optional
	Opportunistic *VirtualMachinePoolOpportunisticScaleIn `json:"opportunistic,omitempty"`
	// The pool shuts members down and removes them.
	// +optional
	Proactive *VirtualMachinePoolProactiveScaleIn `json:"proactive,omitempty"`
}

// VirtualMachinePoolUnmanaged leaves members to users.
type VirtualMachinePoolUnmanaged struct{}

// VirtualMachinePoolOpportunisticScaleIn removes members that don't run.
type VirtualMachinePoolOpportunisticScaleIn struct {
	// What is kept of them. Defaults to Disabled.
	// +optional
	StatePreservation *StatePreservation `json:"statePreservation,omitempty"`
}

// VirtualMachinePoolProactiveScaleIn shuts members down and removes them.
type VirtualMachinePoolProactiveScaleIn struct {
	// Which members go first.
	// +optional
	SelectionPolicy *VirtualMachinePoolSelectionPolicy `json:"selectionPolicy,omitempty"`
	// What is kept of them. Defaults to Disabled.
	// +optional
	StatePreservation *StatePreservation `json:"statePreservation,omitempty"`
}

// StatePreservation says what is kept of a member that is scaled in, for the next member with its name.
//
// +kubebuilder:validation:Enum=Disabled;Offline;Online
type StatePreservation string

// What is kept of a member that is scaled in.
const (
	// PreserveNothing deletes the disks that were made for it.
	PreserveNothing StatePreservation = "Disabled"
	// PreserveDisks keeps them.
	PreserveDisks StatePreservation = "Offline"
	// PreserveMemory keeps them and the guest's memory: the member hibernates.
	PreserveMemory StatePreservation = "Online"
)

// VirtualMachinePoolUpdateStrategy says how members get a changed template.
//
// +kubebuilder:validation:XValidation:rule="[has(self.unmanaged), has(self.opportunistic), has(self.proactive)].filter(x, x).size() <= 1",message="at most one of unmanaged, opportunistic and proactive can be set"
type VirtualMachinePoolUpdateStrategy struct {
	// Members stay as they were made.
	// +optional
	Unmanaged *VirtualMachinePoolUnmanaged `json:"unmanaged,omitempty"`
	// VirtualMachines are changed; what needs a restart waits for one.
	// +optional
	Opportunistic *VirtualMachinePoolOpportunisticUpdate `json:"opportunistic,omitempty"`
	// VirtualMachines are changed, and restarted where that is needed, a few at a time.
	// +optional
	Proactive *VirtualMachinePoolProactiveUpdate `json:"proactive,omitempty"`
}

// VirtualMachinePoolOpportunisticUpdate changes VirtualMachines and restarts none.
type VirtualMachinePoolOpportunisticUpdate struct{}

// VirtualMachinePoolProactiveUpdate changes VirtualMachines and restarts them where that is needed.
type VirtualMachinePoolProactiveUpdate struct {
	// Which members are first.
	// +optional
	SelectionPolicy *VirtualMachinePoolSelectionPolicy `json:"selectionPolicy,omitempty"`
}

// VirtualMachinePoolSelectionPolicy says which members are acted on first.
//
// +kubebuilder:validation:XValidation:rule="!has(self.sortPolicy) || !has(self.basePolicy)",message="sortPolicy and basePolicy are the same: set one"
type VirtualMachinePoolSelectionPolicy struct {
	// The order of members: Oldest, Newest, AscendingOrder and DescendingOrder (of their indexes), or Random,
	// the default, which takes those first that serve least.
	// +optional
	SortPolicy *SortPolicy `json:"sortPolicy,omitempty"`
	// The same as sortPolicy.
	// +optional
	BasePolicy *SortPolicy `json:"basePolicy,omitempty"`
	// Members that match the first policy come first, then those that match the second, and so on, then
	// the rest: none is left out. Within each, basePolicy orders them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	OrderedPolicies []VirtualMachinePoolOrderedPolicy `json:"orderedPolicies,omitempty"`
	// Members that don't match are left alone.
	// +optional
	Selectors *VirtualMachinePoolSelectors `json:"selectors,omitempty"`
}

// SortPolicy is an order of members.
//
// +kubebuilder:validation:Enum=AscendingOrder;DescendingOrder;Newest;Oldest;Random
type SortPolicy string

// The orders of members.
const (
	SortAscending  SortPolicy = "AscendingOrder"
	SortDescending SortPolicy = "DescendingOrder"
	SortNewest     SortPolicy = "Newest"
	SortOldest     SortPolicy = "Oldest"
	SortRandom     SortPolicy = "Random"
)

// VirtualMachinePoolOrderedPolicy is one criterion.
//
// +kubebuilder:validation:XValidation:rule="has(self.labelSelector) != has(self.nodeSelector)",message="exactly one of labelSelector and nodeSelector has to be set"
type VirtualMachinePoolOrderedPolicy struct {
	// Matches labels of the VirtualMachine.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
	// Matches labels of the node that the VM runs on.
	// +optional
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`
}

// VirtualMachinePoolSelectors choose members. All that is set has to match.
type VirtualMachinePoolSelectors struct {
	// Matches labels of the VirtualMachine, or of its template.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
	// Matches labels of the node that the VM runs on; of a VM on no node, the nodeSelector of its template.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	NodeSelectorRequirementMatcher []corev1.NodeSelectorRequirement `json:"nodeSelectorRequirementMatcher,omitempty"`
}

// VirtualMachinePoolAutohealing says when a member is replaced.
//
// +kubebuilder:validation:XValidation:rule="!has(self.startUpFailureThreshold) || !has(self.startupFailureThreshold)",message="startUpFailureThreshold and startupFailureThreshold are the same: set one"
type VirtualMachinePoolAutohealing struct {
	// Starts in a row that failed. Defaults to 3.
	// +optional
	// +kubebuilder:validation:Minimum=1
	StartUpFailureThreshold *int32 `json:"startUpFailureThreshold,omitempty"`
	// The same as startUpFailureThreshold.
	// +optional
	// +kubebuilder:validation:Minimum=1
	StartupFailureThreshold *int32 `json:"startupFailureThreshold,omitempty"`
	// How long a member that has not failed as often may fail to start. Defaults to 5m.
	// +optional
	MinFailingToStartDuration *metav1.Duration `json:"minFailingToStartDuration,omitempty"`
}

// VirtualMachinePoolStandby says how many VMs stand by, and how. They are no replicas, and serve nobody.
type VirtualMachinePoolStandby struct {
	// VMs that stand by, beside replicas.
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas"`
	// What they are until they are needed. Hibernated, the default: booted once, their memory is saved.
	// Halted: booted once and shut down. Running: booted and paused, with all that their pods request.
	// +optional
	State StandbyState `json:"state,omitempty"`
	// Seconds that a VM has been ready when it is brought to that state, for what its guest starts last.
	// Defaults to 10.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	InitialDelaySeconds *int32 `json:"initialDelaySeconds,omitempty"`
}

// StandbyState is what a VM is that stands by.
//
// +kubebuilder:validation:Enum=Hibernated;Halted;Running
type StandbyState string

// The states of VMs that stand by.
const (
	// StandbyHibernated keeps the guest's memory on a claim.
	StandbyHibernated StandbyState = "Hibernated"
	// StandbyHalted keeps the disks of a guest that has booted once.
	StandbyHalted StandbyState = "Halted"
	// StandbyRunning keeps the pod and the guest, which is paused.
	StandbyRunning StandbyState = "Running"
)

// VirtualMachinePoolPreservation bounds the state that is kept of members scaled in.
type VirtualMachinePoolPreservation struct {
	// Members whose state is kept at most; the oldest state goes first. Defaults to 250.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxPreserved *int32 `json:"maxPreserved,omitempty"`
	// How long state is kept. Unset: until it is used.
	// +optional
	TTL *metav1.Duration `json:"ttl,omitempty"`
	// What becomes of it when the pool is deleted: Delete (the default), or Retain.
	// +optional
	// +kubebuilder:validation:Enum=Delete;Retain
	OnPoolDeletion string `json:"onPoolDeletion,omitempty"`
}

// RetainPreserved keeps preserved claims when their pool is deleted.
const RetainPreserved = "Retain"

// VirtualMachinePoolStatus is a pool as it is.
type VirtualMachinePoolStatus struct {
	// The pool's generation that this status is of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// VMs that the pool has and that are not being deleted. VMs whose state is preserved are not among them.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`
	// VMs that run and are ready.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`
	// VMs with the newest template, in what runs, too.
	// +optional
	UpdatedReplicas int32 `json:"updatedReplicas,omitempty"`
	// VMs that are ready and have the newest template.
	// +optional
	AvailableReplicas int32 `json:"availableReplicas,omitempty"`
	// Members that were scaled in and whose state is kept.
	// +optional
	PreservedReplicas int32 `json:"preservedReplicas,omitempty"`
	// VMs that stand by, or are being prepared to. They are not among replicas.
	// +optional
	StandbyReplicas int32 `json:"standbyReplicas,omitempty"`
	// Those of them that have reached their state, and are taken at a scale-out.
	// +optional
	ReadyStandbyReplicas int32 `json:"readyStandbyReplicas,omitempty"`
	// The selector, as a text, that the VMs that count and their pods match: what autoscalers count.
	// +optional
	LabelSelector string `json:"labelSelector,omitempty"`
	// The ControllerRevision that has the newest template.
	// +optional
	UpdateRevision string `json:"updateRevision,omitempty"`
	// When an update made progress last.
	// +optional
	LastProgressTime *metav1.Time `json:"lastProgressTime,omitempty"`
	// Members whose state is kept, by index.
	// +optional
	// +listType=map
	// +listMapKey=index
	// +kubebuilder:validation:MaxItems=1000
	Preserved []PreservedMember `json:"preserved,omitempty"`
	// Members that were replaced because they failed, by index.
	// +optional
	// +listType=map
	// +listMapKey=index
	// +kubebuilder:validation:MaxItems=1000
	Healed []HealedMember `json:"healed,omitempty"`
	// Progressing, UpdatePending, ReplicaFailure and ReplicaPaused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// The conditions of a pool.
const (
	// ConditionProgressing: an update is done or makes progress.
	ConditionProgressing = "Progressing"
	// ConditionUpdatePending: members wait for a restart to get the newest template.
	ConditionUpdatePending = "UpdatePending"
	// ConditionReplicaFailure: a member can't be made, changed, removed or kept running.
	ConditionReplicaFailure = "ReplicaFailure"
	// ConditionReplicaPaused: the pool is paused.
	ConditionReplicaPaused = "ReplicaPaused"
)

// PreservedMember is the state kept of a member that was scaled in.
type PreservedMember struct {
	// The member's index.
	Index int32 `json:"index"`
	// The VirtualMachine's name.
	Name string `json:"name"`
	// Offline: its disks are kept. Online: its memory, too.
	State StatePreservation `json:"state"`
	// When it was scaled in.
	// +optional
	Since metav1.Time `json:"since,omitzero"`
	// The ControllerRevision that it was made from.
	// +optional
	Revision string `json:"revision,omitempty"`
	// The claims that are kept.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Claims []string `json:"claims,omitempty"`
}

// HealedMember counts how often a member was replaced.
type HealedMember struct {
	// The member's index.
	Index int32 `json:"index"`
	// Replacements in a row that have not become ready.
	Count int32 `json:"count"`
	// When the last one began.
	Last metav1.Time `json:"last"`
}
