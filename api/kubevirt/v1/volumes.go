package v1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Volume is what a disk or a shared file system is made of. Exactly one source is set.
//
// +kubebuilder:validation:XValidation:rule="[has(self.containerDisk), has(self.persistentVolumeClaim), has(self.dataVolume), has(self.ephemeral), has(self.emptyDisk), has(self.hostDisk), has(self.cloudInitNoCloud), has(self.cloudInitConfigDrive), has(self.sysprep), has(self.configMap), has(self.secret), has(self.downwardAPI), has(self.serviceAccount), has(self.downwardMetrics), has(self.memoryDump), has(self.containerPath)].exists_one(x, x)",message="exactly one source of the volume has to be set"
type Volume struct {
	// Name that disks and file systems refer to.
	Name string `json:"name"`
	// A disk in a container image. What the guest writes is lost when the instance ends.
	// +optional
	ContainerDisk *ContainerDiskSource `json:"containerDisk,omitempty"`
	// A PersistentVolumeClaim: a block device, or a file system with disk.img.
	// +optional
	PersistentVolumeClaim *PersistentVolumeClaimSource `json:"persistentVolumeClaim,omitempty"`
	// The PersistentVolumeClaim of a DataVolume, once that is filled.
	// +optional
	DataVolume *DataVolumeSource `json:"dataVolume,omitempty"`
	// A PersistentVolumeClaim that is only read. What the guest writes is lost when the instance
	// ends.
	// +optional
	Ephemeral *EphemeralSource `json:"ephemeral,omitempty"`
	// An empty disk, which is lost when the instance ends.
	// +optional
	EmptyDisk *EmptyDiskSource `json:"emptyDisk,omitempty"`
	// A file of the node.
	// +optional
	HostDisk *HostDiskSource `json:"hostDisk,omitempty"`
	// User data for cloud-init, as a NoCloud medium.
	// +optional
	CloudInitNoCloud *CloudInitSource `json:"cloudInitNoCloud,omitempty"`
	// User data for cloud-init, as a ConfigDrive medium.
	// +optional
	CloudInitConfigDrive *CloudInitSource `json:"cloudInitConfigDrive,omitempty"`
	// Answer files for the installation of Windows.
	// +optional
	Sysprep *SysprepSource `json:"sysprep,omitempty"`
	// A ConfigMap, with a file for each key.
	// +optional
	ConfigMap *ConfigMapSource `json:"configMap,omitempty"`
	// A Secret, with a file for each key.
	// +optional
	Secret *SecretSource `json:"secret,omitempty"`
	// Facts about the pod, as files.
	// +optional
	DownwardAPI *DownwardAPISource `json:"downwardAPI,omitempty"`
	// A ServiceAccount's token.
	// +optional
	ServiceAccount *ServiceAccountSource `json:"serviceAccount,omitempty"`
	// Metrics of the guest's host.
	// +optional
	DownwardMetrics *DownwardMetricsSource `json:"downwardMetrics,omitempty"`
	// A PersistentVolumeClaim for dumps of the guest's memory. Written by the controller alone.
	// +optional
	MemoryDump *PersistentVolumeClaimSource `json:"memoryDump,omitempty"`
	// A directory of the pod's container, to share as a file system.
	// +optional
	ContainerPath *ContainerPathSource `json:"containerPath,omitempty"`
}

// ContainerDiskSource is a disk in a container image.
type ContainerDiskSource struct {
	// Reference of the image.
	Image string `json:"image"`
	// Name of the Secret to pull the image with.
	// +optional
	ImagePullSecret string `json:"imagePullSecret,omitempty"`
	// Path of the disk in the image. Defaults to the only file in /disk.
	// +optional
	Path string `json:"path,omitempty"`
	// When the image is pulled: Always, IfNotPresent or Never. Defaults to Always for the tag
	// latest, else to IfNotPresent.
	// +optional
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
}

// PersistentVolumeClaimSource is a PersistentVolumeClaim.
type PersistentVolumeClaimSource struct {
	corev1.PersistentVolumeClaimVolumeSource `json:",inline"`
	// Whether the volume can be attached to and detached from the running guest.
	// +optional
	Hotpluggable bool `json:"hotpluggable,omitempty"`
}

// DataVolumeSource is the claim of a DataVolume.
type DataVolumeSource struct {
	// Name of the DataVolume, and of its claim.
	Name string `json:"name"`
	// Whether the volume can be attached to and detached from the running guest.
	// +optional
	Hotpluggable bool `json:"hotpluggable,omitempty"`
}

// HotplugVolumeSource is what a volume is made of that is added to a running guest.
type HotplugVolumeSource struct {
	// A PersistentVolumeClaim.
	// +optional
	PersistentVolumeClaim *PersistentVolumeClaimSource `json:"persistentVolumeClaim,omitempty"`
	// The PersistentVolumeClaim of a DataVolume.
	// +optional
	DataVolume *DataVolumeSource `json:"dataVolume,omitempty"`
}

// EphemeralSource is a claim that is only read.
type EphemeralSource struct {
	// The claim.
	// +optional
	PersistentVolumeClaim *corev1.PersistentVolumeClaimVolumeSource `json:"persistentVolumeClaim,omitempty"`
}

// EmptyDiskSource is an empty disk.
type EmptyDiskSource struct {
	// Size of the disk.
	Capacity resource.Quantity `json:"capacity"`
}

// HostDiskSource is a file of the node.
type HostDiskSource struct {
	// Path of the file on the node.
	Path string `json:"path"`
	// Disk: the file is there; DiskOrCreate: it is made if it is not.
	Type HostDiskType `json:"type"`
	// Size of a file that is made.
	// +optional
	Capacity *resource.Quantity `json:"capacity,omitempty"`
	// Whether all nodes have the file at this path.
	// +optional
	Shared *bool `json:"shared,omitempty"`
}

// HostDiskType says whether a file of the node may be made.
//
// +kubebuilder:validation:Enum=Disk;DiskOrCreate
type HostDiskType string

// The types of host disks.
const (
	HostDiskExists   HostDiskType = "Disk"
	HostDiskOrCreate HostDiskType = "DiskOrCreate"
)

// CloudInitSource is the input of cloud-init. Each of user data and network data comes from
// one place; text that is empty is none.
//
// +kubebuilder:validation:XValidation:rule="[has(self.secretRef), has(self.userData) && self.userData.size() > 0, has(self.userDataBase64) && self.userDataBase64.size() > 0].filter(x, x).size() <= 1",message="at most one of secretRef, userData and userDataBase64 may be set"
// +kubebuilder:validation:XValidation:rule="[has(self.networkDataSecretRef), has(self.networkData) && self.networkData.size() > 0, has(self.networkDataBase64) && self.networkDataBase64.size() > 0].filter(x, x).size() <= 1",message="at most one of networkDataSecretRef, networkData and networkDataBase64 may be set"
type CloudInitSource struct {
	// Secret that has the user data under userdata.
	// +optional
	UserDataSecretRef *corev1.LocalObjectReference `json:"secretRef,omitempty"`
	// User data in base64, of 2048 bytes at most.
	// +optional
	UserDataBase64 string `json:"userDataBase64,omitempty"`
	// User data, of 2048 bytes at most.
	// +optional
	UserData string `json:"userData,omitempty"`
	// Secret that has the network data under networkdata.
	// +optional
	NetworkDataSecretRef *corev1.LocalObjectReference `json:"networkDataSecretRef,omitempty"`
	// Network data in base64, of 2048 bytes at most.
	// +optional
	NetworkDataBase64 string `json:"networkDataBase64,omitempty"`
	// Network data, of 2048 bytes at most.
	// +optional
	NetworkData string `json:"networkData,omitempty"`
}

// SysprepSource is answer files for the installation of Windows: autounattend.xml,
// unattend.xml or both.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.configMap) && has(self.secret))",message="at most one of configMap and secret may be set"
type SysprepSource struct {
	// ConfigMap that has the files.
	// +optional
	ConfigMap *corev1.LocalObjectReference `json:"configMap,omitempty"`
	// Secret that has the files.
	// +optional
	Secret *corev1.LocalObjectReference `json:"secret,omitempty"`
}

// ConfigMapSource is a ConfigMap, with a file for each key.
type ConfigMapSource struct {
	corev1.LocalObjectReference `json:",inline"`
	// Whether the instance starts without the ConfigMap.
	// +optional
	Optional *bool `json:"optional,omitempty"`
	// Label of the medium. Defaults to cfgdata.
	// +optional
	VolumeLabel string `json:"volumeLabel,omitempty"`
}

// SecretSource is a Secret, with a file for each key.
type SecretSource struct {
	// Name of the Secret.
	// +optional
	SecretName string `json:"secretName,omitempty"`
	// Whether the instance starts without the Secret.
	// +optional
	Optional *bool `json:"optional,omitempty"`
	// Label of the medium. Defaults to cfgdata.
	// +optional
	VolumeLabel string `json:"volumeLabel,omitempty"`
}

// DownwardAPISource is facts about the pod, as files.
type DownwardAPISource struct {
	// The files.
	// +optional
	Fields []corev1.DownwardAPIVolumeFile `json:"fields,omitempty"`
	// Label of the medium. Defaults to cfgdata.
	// +optional
	VolumeLabel string `json:"volumeLabel,omitempty"`
}

// ServiceAccountSource is a ServiceAccount's token.
type ServiceAccountSource struct {
	// Name of the ServiceAccount. The pod has to run as it.
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
}

// DownwardMetricsSource has no settings.
type DownwardMetricsSource struct{}

// ContainerPathSource is a directory of the pod's container.
type ContainerPathSource struct {
	// Path of the directory. It begins with / and has no `..`.
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/') && !self.contains('..')",message="path has to begin with / and may not have .. in it"
	Path string `json:"path"`
	// Whether the guest can't write to it. Only true is supported.
	// +optional
	// +kubebuilder:default=true
	// +kubebuilder:validation:XValidation:rule="self",message="readOnly has to be true"
	ReadOnly *bool `json:"readOnly,omitempty"`
}

// UtilityVolume is a claim attached to the running pod that is no disk of the guest.
type UtilityVolume struct {
	// Name of the volume. No other volume of the instance has it.
	Name string `json:"name"`
	// The claim.
	corev1.PersistentVolumeClaimVolumeSource `json:",inline"`
	// What the claim is for: MemoryDump, Backup or Hibernation.
	// +optional
	Type *string `json:"type,omitempty"`
}
