package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VirtualMachineInstance is one run of a VM: it has one pod, and ends with it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=vmi;vmis,categories=all
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=vmlet"
// +kubebuilder:metadata:labels="vmlet.io/definition="
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Phase",type="string",JSONPath=".status.phase"
// +kubebuilder:printcolumn:name="IP",type="string",JSONPath=".status.interfaces[0].ipAddress"
// +kubebuilder:printcolumn:name="NodeName",type="string",JSONPath=".status.nodeName"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Live-Migratable",type="string",JSONPath=".status.conditions[?(@.type=='LiveMigratable')].status",priority=1
// +kubebuilder:printcolumn:name="Paused",type="string",JSONPath=".status.conditions[?(@.type=='Paused')].status",priority=1
type VirtualMachineInstance struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`
	// The instance as it was asked for.
	Spec VirtualMachineInstanceSpec `json:"spec"`
	// The instance as it is. Written by the controller alone.
	// +optional
	Status VirtualMachineInstanceStatus `json:"status,omitzero"`
}

// VirtualMachineInstanceList is a list of VirtualMachineInstances.
//
// +kubebuilder:object:root=true
type VirtualMachineInstanceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []VirtualMachineInstance `json:"items"`
}

// VirtualMachineInstanceSpec is the hardware of a guest and where its pod runs.
type VirtualMachineInstanceSpec struct {
	// The guest's hardware.
	Domain DomainSpec `json:"domain"`
	// What the guest's disks and shared file systems are made of.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Volumes []Volume `json:"volumes,omitempty"`
	// Networks that the guest's interfaces are connected to.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Networks []Network `json:"networks,omitempty"`
	// Keys and passwords that are put into the guest.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	AccessCredentials []AccessCredential `json:"accessCredentials,omitempty"`
	// Devices that Dynamic Resource Allocation allots to the pod.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	ResourceClaims []ResourceClaim `json:"resourceClaims,omitempty"`
	// Claims attached to the running pod that are no disks of the guest. Written by the
	// controller alone.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	UtilityVolumes []UtilityVolume `json:"utilityVolumes,omitempty"`

	// How the guest starts: Paused holds it before its first instruction, Restore resumes it
	// from the memory saved by a hibernation.
	// +optional
	StartStrategy *StartStrategy `json:"startStrategy,omitempty"`
	// What startStrategy Restore resumes the guest from. Written by the controller alone.
	// +optional
	RestoreFrom *SavedImage `json:"restoreFrom,omitempty"`
	// Ends the guest with its memory saved: Save, to the utility volume of type Hibernation, or
	// SuspendToDisk. Removed again, the guest goes on. Written by the controller alone.
	// +optional
	StopStrategy string `json:"stopStrategy,omitempty"`
	// What an eviction of the pod does: None ends the guest, LiveMigrate and
	// LiveMigrateIfPossible move it, Hibernate saves it and has it go on elsewhere, External
	// leaves it to another controller. Defaults to the
	// cluster's evictionStrategy.
	// +optional
	EvictionStrategy *EvictionStrategy `json:"evictionStrategy,omitempty"`
	// Seconds a guest has to shut down before it is killed. 0 kills it at once. Defaults to 30.
	// +optional
	TerminationGracePeriodSeconds *int64 `json:"terminationGracePeriodSeconds,omitempty"`
	// A check whose failure ends the instance.
	// +optional
	LivenessProbe *Probe `json:"livenessProbe,omitempty"`
	// A check whose failure takes the instance out of Services.
	// +optional
	ReadinessProbe *Probe `json:"readinessProbe,omitempty"`

	// Host name of the guest. Defaults to the instance's name.
	// +optional
	Hostname string `json:"hostname,omitempty"`
	// Subdomain of the guest's full host name, as of a pod.
	// +optional
	Subdomain string `json:"subdomain,omitempty"`
	// Where the guest's DNS servers come from, as of a pod.
	// +optional
	DNSPolicy corev1.DNSPolicy `json:"dnsPolicy,omitempty"`
	// DNS servers and search domains of the guest, as of a pod.
	// +optional
	DNSConfig *corev1.PodDNSConfig `json:"dnsConfig,omitempty"`

	// CPU architecture of the guest: amd64, arm64 or s390x. Defaults to the cluster's.
	// +optional
	Architecture string `json:"architecture,omitempty"`
	// PriorityClass of the pod.
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// Labels that the pod's node must have.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Which nodes the pod may run on, and beside which pods.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`
	// Scheduler of the pod.
	// +optional
	SchedulerName string `json:"schedulerName,omitempty"`
	// ServiceAccount of the pod. Its token is not in the pod unless a volume asks for it.
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
	// Taints of nodes that the pod tolerates.
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// How pods are spread over zones and nodes.
	// +optional
	// +listType=map
	// +listMapKey=topologyKey
	// +listMapKey=whenUnsatisfiable
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`
}

// EvictionStrategy says what an eviction of a VM's pod does.
//
// +kubebuilder:validation:Enum=None;LiveMigrate;LiveMigrateIfPossible;External;Hibernate
type EvictionStrategy string

// The eviction strategies.
const (
	EvictionNone                  EvictionStrategy = "None"
	EvictionLiveMigrate           EvictionStrategy = "LiveMigrate"
	EvictionLiveMigrateIfPossible EvictionStrategy = "LiveMigrateIfPossible"
	EvictionExternal              EvictionStrategy = "External"
	// EvictionHibernate saves the guest, and has it go on elsewhere.
	EvictionHibernate EvictionStrategy = "Hibernate"
)

// StartStrategy says how a guest starts. Admission checks the value, as it understands other
// spellings.
type StartStrategy string

// The start strategies.
const (
	StartPaused  StartStrategy = "Paused"
	StartRestore StartStrategy = "Restore"
	// StartBoot boots a hibernated VM afresh, and discards what was saved.
	StartBoot StartStrategy = "Boot"
)

// ResourceClaim is a claim for devices. Exactly one of its sources is set.
//
// +kubebuilder:validation:XValidation:rule="has(self.resourceClaimName) != has(self.resourceClaimTemplateName)",message="exactly one of resourceClaimName and resourceClaimTemplateName has to be set"
type ResourceClaim struct {
	// Name that devices of the guest refer to.
	Name string `json:"name"`
	// Name of a ResourceClaim in the same namespace.
	// +optional
	ResourceClaimName *string `json:"resourceClaimName,omitempty"`
	// Name of a ResourceClaimTemplate in the same namespace, which a claim is made from with
	// the pod.
	// +optional
	ResourceClaimTemplateName *string `json:"resourceClaimTemplateName,omitempty"`
}

// ClaimRequest refers to a device in a resource claim.
type ClaimRequest struct {
	// Name of an entry in spec.resourceClaims.
	// +optional
	ClaimName string `json:"claimName,omitempty"`
	// Name of the request in that claim.
	// +optional
	RequestName string `json:"requestName,omitempty"`
}
