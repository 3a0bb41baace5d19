package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KubeVirt is the configuration of all VMs of a cluster. There is one.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=kv;kvs,categories=all
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=vmlet"
// +kubebuilder:metadata:labels="vmlet.io/definition="
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Phase",type="string",JSONPath=".status.phase"
type KubeVirt struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`
	// The cluster half as its administrator wants it.
	Spec KubeVirtSpec `json:"spec"`
	// The cluster half as it is. Written by the controller alone.
	// +optional
	Status KubeVirtStatus `json:"status,omitzero"`
}

// KubeVirtList is a list of KubeVirts.
//
// +kubebuilder:object:root=true
type KubeVirtList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []KubeVirt `json:"items"`
}

// KubeVirtSpec is the cluster half as its administrator wants it. Much of it is about an
// operator that installs programs; vmlet has none, and keeps those fields for manifests that
// have them.
type KubeVirtSpec struct {
	// Settings of VMs.
	// +optional
	Configuration KubeVirtConfiguration `json:"configuration,omitzero"`
	// Tag of the images that are installed.
	// +optional
	ImageTag string `json:"imageTag,omitempty"`
	// Registry of the images that are installed.
	// +optional
	ImageRegistry string `json:"imageRegistry,omitempty"`
	// When images are pulled: Always, IfNotPresent or Never.
	// +optional
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
	// Secrets to pull images with.
	// +optional
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
	// Namespace of Prometheus.
	// +optional
	MonitorNamespace string `json:"monitorNamespace,omitempty"`
	// Namespace that the ServiceMonitor is made in. Defaults to monitorNamespace.
	// +optional
	ServiceMonitorNamespace string `json:"serviceMonitorNamespace,omitempty"`
	// ServiceAccount of Prometheus, which may read metrics.
	// +optional
	MonitorAccount string `json:"monitorAccount,omitempty"`
	// How running VMs come to a new release.
	// +optional
	WorkloadUpdateStrategy WorkloadUpdateStrategy `json:"workloadUpdateStrategy,omitzero"`
	// What a deletion of this object does while there are VMs: RemoveWorkloads (the default)
	// deletes them, BlockUninstallIfWorkloadsExist refuses.
	// +optional
	UninstallStrategy UninstallStrategy `json:"uninstallStrategy,omitempty"`
	// How certificates are renewed.
	// +optional
	CertificateRotateStrategy CertificateRotateStrategy `json:"certificateRotateStrategy,omitzero"`
	// Version of the product that this is a part of, in a label of what is installed.
	// +optional
	ProductVersion string `json:"productVersion,omitempty"`
	// Name of the product that this is a part of, in a label of what is installed.
	// +optional
	ProductName string `json:"productName,omitempty"`
	// Component of the product, in a label of what is installed.
	// +optional
	ProductComponent string `json:"productComponent,omitempty"`
	// Port for migrations between clusters.
	// +optional
	SynchronizationPort string `json:"synchronizationPort,omitempty"`
	// Where the cluster's programs run.
	// +optional
	Infra *ComponentConfig `json:"infra,omitempty"`
	// Which nodes run VMs.
	// +optional
	Workloads *ComponentConfig `json:"workloads,omitempty"`
	// Changes to what is installed.
	// +optional
	CustomizeComponents CustomizeComponents `json:"customizeComponents,omitzero"`
}

// WorkloadUpdateStrategy says how running VMs come to a new release.
type WorkloadUpdateStrategy struct {
	// Ways that are used, the first that a VM allows: LiveMigrate, Evict. Without any, VMs stay
	// as they are until they restart.
	// +optional
	WorkloadUpdateMethods []WorkloadUpdateMethod `json:"workloadUpdateMethods,omitempty"`
	// VMs that are evicted at once. Defaults to 10.
	// +optional
	BatchEvictionSize *int `json:"batchEvictionSize,omitempty"`
	// Time between two batches, such as 1m. Defaults to 1m.
	// +optional
	BatchEvictionInterval *metav1.Duration `json:"batchEvictionInterval,omitempty"`
}

// WorkloadUpdateMethod is a way for running VMs to come to a new release.
//
// +kubebuilder:validation:Enum=LiveMigrate;Evict
type WorkloadUpdateMethod string

// The ways to a new release.
const (
	WorkloadUpdateLiveMigrate WorkloadUpdateMethod = "LiveMigrate"
	WorkloadUpdateEvict       WorkloadUpdateMethod = "Evict"
)

// UninstallStrategy says what a deletion does while there are VMs.
//
// +kubebuilder:validation:Enum="";RemoveWorkloads;BlockUninstallIfWorkloadsExist
type UninstallStrategy string

// The strategies for an uninstall.
const (
	UninstallRemoveWorkloads  UninstallStrategy = "RemoveWorkloads"
	UninstallBlockIfWorkloads UninstallStrategy = "BlockUninstallIfWorkloadsExist"
)

// CertificateRotateStrategy says how certificates are renewed.
type CertificateRotateStrategy struct {
	// Certificates signed within the cluster.
	// +optional
	SelfSigned *SelfSignedCertificates `json:"selfSigned,omitempty"`
}

// SelfSignedCertificates says how certificates signed within the cluster are renewed.
type SelfSignedCertificates struct {
	// The certificate authority.
	// +optional
	CA *CertificateLifetime `json:"ca,omitempty"`
	// Certificates that it signs.
	// +optional
	Server *CertificateLifetime `json:"server,omitempty"`
	// Deprecated: use ca.duration.
	// +optional
	CARotateInterval *metav1.Duration `json:"caRotateInterval,omitempty"`
	// Deprecated: use server.duration.
	// +optional
	CertRotateInterval *metav1.Duration `json:"certRotateInterval,omitempty"`
	// Deprecated: use ca.duration and ca.renewBefore.
	// +optional
	CAOverlapInterval *metav1.Duration `json:"caOverlapInterval,omitempty"`
}

// CertificateLifetime is how long a certificate is valid.
type CertificateLifetime struct {
	// Time the certificate is valid, such as 24h.
	// +optional
	Duration *metav1.Duration `json:"duration,omitempty"`
	// Time before its end at which it is renewed, such as 6h.
	// +optional
	RenewBefore *metav1.Duration `json:"renewBefore,omitempty"`
}

// ComponentConfig says where programs run.
type ComponentConfig struct {
	// Nodes that they run on.
	// +optional
	NodePlacement *NodePlacement `json:"nodePlacement,omitempty"`
	// Number of replicas.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	Replicas *int32 `json:"replicas,omitempty"`
}

// NodePlacement is nodes that programs run on.
type NodePlacement struct {
	// Labels that the nodes must have.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Which nodes are fit, and beside which pods.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`
	// Taints that are tolerated.
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
}

// CustomizeComponents is changes to what is installed.
type CustomizeComponents struct {
	// Patches of objects.
	// +optional
	Patches []CustomizeComponentsPatch `json:"patches,omitempty"`
	// Flags of programs.
	// +optional
	Flags *ComponentFlags `json:"flags,omitempty"`
}

// CustomizeComponentsPatch is a patch of objects.
type CustomizeComponentsPatch struct {
	// Name of the object, or * for all.
	// +kubebuilder:validation:MinLength=1
	ResourceName string `json:"resourceName"`
	// Kind of the object.
	// +kubebuilder:validation:MinLength=1
	ResourceType string `json:"resourceType"`
	// The patch.
	Patch string `json:"patch"`
	// Kind of patch: json, merge or strategic.
	Type string `json:"type"`
}

// ComponentFlags are flags of programs: their names without dashes, and values.
type ComponentFlags struct {
	// Flags of virt-api.
	// +optional
	API map[string]string `json:"api,omitempty"`
	// Flags of virt-controller.
	// +optional
	Controller map[string]string `json:"controller,omitempty"`
	// Flags of virt-handler.
	// +optional
	Handler map[string]string `json:"handler,omitempty"`
}

// KubeVirtStatus is the cluster half as it is.
type KubeVirtStatus struct {
	// Deploying, Deployed, Deleting or Deleted.
	// +optional
	Phase string `json:"phase,omitempty"`
	// Conditions: Available, Progressing, Degraded, Created and Synchronized.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
	// Version of the program that writes this status.
	// +optional
	OperatorVersion string `json:"operatorVersion,omitempty"`
	// Registry that is being changed to.
	// +optional
	TargetKubeVirtRegistry string `json:"targetKubeVirtRegistry,omitempty"`
	// Version that is being changed to.
	// +optional
	TargetKubeVirtVersion string `json:"targetKubeVirtVersion,omitempty"`
	// Configuration that is being changed to.
	// +optional
	TargetDeploymentConfig string `json:"targetDeploymentConfig,omitempty"`
	// Identifier of the configuration that is being changed to.
	// +optional
	TargetDeploymentID string `json:"targetDeploymentID,omitempty"`
	// Registry in use.
	// +optional
	ObservedKubeVirtRegistry string `json:"observedKubeVirtRegistry,omitempty"`
	// Version in use.
	// +optional
	ObservedKubeVirtVersion string `json:"observedKubeVirtVersion,omitempty"`
	// Configuration in use.
	// +optional
	ObservedDeploymentConfig string `json:"observedDeploymentConfig,omitempty"`
	// Identifier of the configuration in use.
	// +optional
	ObservedDeploymentID string `json:"observedDeploymentID,omitempty"`
	// Number of VMs that run with an older release.
	// +optional
	OutdatedVirtualMachineInstanceWorkloads *int `json:"outdatedVirtualMachineInstanceWorkloads,omitempty"`
	// Generation of this object that the status was made from.
	// +optional
	ObservedGeneration *int64 `json:"observedGeneration,omitempty"`
	// Architecture of VMs that don't name one.
	// +optional
	DefaultArchitecture string `json:"defaultArchitecture,omitempty"`
	// Generations of the objects that were installed.
	// +optional
	Generations []GenerationStatus `json:"generations,omitempty"`
	// Addresses for migrations between clusters.
	// +optional
	SynchronizationAddresses []string `json:"synchronizationAddresses,omitempty"`
	// The virtualisation stack that the virtualizationProfile names, by what its launcher's image says on the nodes.
	// vmlet's own.
	// +optional
	VirtualizationStack *VirtualizationStackStatus `json:"virtualizationStack,omitempty"`
}

// VirtualizationStackStatus is what nodes found in the image of a virtualisation stack.
type VirtualizationStackStatus struct {
	// Name of the profile.
	// +optional
	Name string `json:"name,omitempty"`
	// Image that was asked.
	// +optional
	Image string `json:"image,omitempty"`
	// Nodes on which it is to be asked.
	Nodes int32 `json:"nodes"`
	// Nodes that have answered.
	AnsweringNodes int32 `json:"answeringNodes"`
	// VMMs in the image.
	// +optional
	// +listType=map
	// +listMapKey=name
	VMMs []VirtualizationStackVMM `json:"vmms,omitempty"`
	// Why it does not work on some node, for the first of them.
	// +optional
	// +listType=map
	// +listMapKey=node
	Failures []VirtualizationStackFailure `json:"failures,omitempty"`
}

// VirtualizationStackVMM is a VMM in the image of a virtualisation stack.
type VirtualizationStackVMM struct {
	// Name that the annotation vmlet.io/vmm has for it.
	Name string `json:"name"`
	// Version that the first node says.
	// +optional
	Version string `json:"version,omitempty"`
	// Number of nodes on which it runs VMs.
	WorkingNodes int32 `json:"workingNodes"`
	// What its driver says of it, as JSON, by which VMs are judged; empty for VMMs of vmlet's own.
	// +optional
	Description string `json:"description,omitempty"`
}

// VirtualizationStackFailure is why a virtualisation stack does not work on a node.
type VirtualizationStackFailure struct {
	// Name of the node.
	Node string `json:"node"`
	// Reason why.
	Reason string `json:"reason"`
}

// GenerationStatus is the generation of an object that was installed.
type GenerationStatus struct {
	// API group of the object.
	Group string `json:"group"`
	// Resource of the object.
	Resource string `json:"resource"`
	// Namespace of the object.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name of the object.
	Name string `json:"name"`
	// Generation that was seen last.
	LastGeneration int64 `json:"lastGeneration"`
	// Hash of the object's content, where it has no generation.
	// +optional
	Hash string `json:"hash,omitempty"`
}
