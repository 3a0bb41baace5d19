package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DataVolumeTemplateSpec is a DataVolume made with a VM. It has the fields of
// cdi.kubevirt.io/v1beta1's.
type DataVolumeTemplateSpec struct {
	// Ignored.
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
	// Ignored.
	// +optional
	Kind string `json:"kind,omitempty"`
	// Name, labels and annotations of the DataVolume. Unknown fields are kept.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	metav1.ObjectMeta `json:"metadata,omitzero"`
	// The DataVolume.
	Spec DataVolumeSpec `json:"spec"`
	// Ignored. Older clients send it.
	// +optional
	Status *DataVolumeTemplateStatus `json:"status,omitempty"`
}

// DataVolumeTemplateStatus is empty.
type DataVolumeTemplateStatus struct{}

// DataVolumeSpec is a claim, and what it is filled with.
type DataVolumeSpec struct {
	// What the claim is filled with.
	// +optional
	Source *DataVolumeContent `json:"source,omitempty"`
	// An object that says what the claim is filled with.
	// +optional
	SourceRef *DataVolumeSourceRef `json:"sourceRef,omitempty"`
	// The claim, as it is to be.
	// +optional
	PVC *corev1.PersistentVolumeClaimSpec `json:"pvc,omitempty"`
	// The claim, with what is left open filled in for its storage class. The size is what the
	// guest sees.
	// +optional
	Storage *StorageSpec `json:"storage,omitempty"`
	// PriorityClass of the pods that fill the claim.
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// What the source has: kubevirt (a disk image, the default) or archive (a tar of files).
	// +optional
	ContentType DataVolumeContentType `json:"contentType,omitempty"`
	// Steps of a copy in several stages.
	// +optional
	Checkpoints []DataVolumeCheckpoint `json:"checkpoints,omitempty"`
	// Whether the last checkpoint ends the copy.
	// +optional
	FinalCheckpoint bool `json:"finalCheckpoint,omitempty"`
	// Whether the disk's blocks are allocated beforehand.
	// +optional
	Preallocation *bool `json:"preallocation,omitempty"`
}

// DataVolumeContentType is what a DataVolume's source has.
//
// +kubebuilder:validation:Enum="";kubevirt;archive
type DataVolumeContentType string

// The types of content.
const (
	ContentDiskImage DataVolumeContentType = "kubevirt"
	ContentArchive   DataVolumeContentType = "archive"
)

// StorageSpec is a claim that is filled in for its storage class.
type StorageSpec struct {
	// Access modes of the claim.
	// +optional
	AccessModes []corev1.PersistentVolumeAccessMode `json:"accessModes,omitempty"`
	// Labels of the volumes that are fit.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Size of the disk that the guest sees.
	// +optional
	Resources corev1.VolumeResourceRequirements `json:"resources,omitzero"`
	// Name of the volume to bind to.
	// +optional
	VolumeName string `json:"volumeName,omitempty"`
	// Name of the storage class. Defaults to the cluster's.
	// +optional
	StorageClassName *string `json:"storageClassName,omitempty"`
	// Filesystem, Block, or FromStorageProfile.
	// +optional
	VolumeMode *corev1.PersistentVolumeMode `json:"volumeMode,omitempty"`
	// Object in the same namespace that the storage fills the volume from.
	// +optional
	DataSource *corev1.TypedLocalObjectReference `json:"dataSource,omitempty"`
	// Object that the storage fills the volume from.
	// +optional
	DataSourceRef *corev1.TypedObjectReference `json:"dataSourceRef,omitempty"`
}

// DataVolumeCheckpoint is a step of a copy in several stages.
type DataVolumeCheckpoint struct {
	// Identifier of the snapshot of the previous step.
	Previous string `json:"previous"`
	// Identifier of the snapshot that is copied.
	Current string `json:"current"`
}

// DataVolumeSourceRef names an object that says what a claim is filled with.
type DataVolumeSourceRef struct {
	// Kind of the object: DataSource.
	Kind string `json:"kind"`
	// Namespace of the object. Defaults to the VM's.
	// +optional
	Namespace *string `json:"namespace,omitempty"`
	// Name of the object.
	Name string `json:"name"`
}

// DataVolumeContent is what a claim is filled with. At most one is set.
//
// +kubebuilder:validation:XValidation:rule="[has(self.blank), has(self.http), has(self.registry), has(self.pvc), has(self.snapshot), has(self.upload), has(self.s3), has(self.gcs), has(self.imageio), has(self.vddk)].filter(x, x).size() <= 1",message="at most one source may be set"
type DataVolumeContent struct {
	// An empty disk.
	// +optional
	Blank *DataVolumeBlank `json:"blank,omitempty"`
	// A file from a web server.
	// +optional
	HTTP *DataVolumeHTTP `json:"http,omitempty"`
	// A disk in a container image.
	// +optional
	Registry *DataVolumeRegistry `json:"registry,omitempty"`
	// A copy of another claim.
	// +optional
	PVC *DataVolumeObject `json:"pvc,omitempty"`
	// A volume snapshot.
	// +optional
	Snapshot *DataVolumeObject `json:"snapshot,omitempty"`
	// What a client uploads.
	// +optional
	Upload *DataVolumeUpload `json:"upload,omitempty"`
	// An object of an S3 store.
	// +optional
	S3 *DataVolumeS3 `json:"s3,omitempty"`
	// An object of Google Cloud Storage.
	// +optional
	GCS *DataVolumeGCS `json:"gcs,omitempty"`
	// A disk of oVirt's.
	// +optional
	ImageIO *DataVolumeImageIO `json:"imageio,omitempty"`
	// A disk of VMware's.
	// +optional
	VDDK *DataVolumeVDDK `json:"vddk,omitempty"`
}

// DataVolumeBlank has no settings.
type DataVolumeBlank struct{}

// DataVolumeUpload has no settings.
type DataVolumeUpload struct{}

// DataVolumeObject names a claim or volume snapshot.
type DataVolumeObject struct {
	// Namespace of the object.
	Namespace string `json:"namespace"`
	// Name of the object.
	Name string `json:"name"`
}

// DataVolumeHTTP is a file from a web server.
type DataVolumeHTTP struct {
	// URL of the file.
	URL string `json:"url"`
	// Name of the Secret that has accessKeyId and secretKey for the server.
	// +optional
	SecretRef string `json:"secretRef,omitempty"`
	// Name of the ConfigMap that has the server's certificate authorities.
	// +optional
	CertConfigMap string `json:"certConfigMap,omitempty"`
	// Headers of the request.
	// +optional
	ExtraHeaders []string `json:"extraHeaders,omitempty"`
	// Names of Secrets that have headers of the request.
	// +optional
	SecretExtraHeaders []string `json:"secretExtraHeaders,omitempty"`
	// Checksum of the file, such as sha256:…
	// +optional
	Checksum string `json:"checksum,omitempty"`
}

// DataVolumeRegistry is a disk in a container image.
type DataVolumeRegistry struct {
	// URL of the image: docker://REFERENCE or oci-archive://PATH.
	// +optional
	URL *string `json:"url,omitempty"`
	// Name of an ImageStream of OpenShift's.
	// +optional
	ImageStream *string `json:"imageStream,omitempty"`
	// Who pulls the image: pod (a program in a pod) or node (the node's container runtime).
	// +optional
	PullMethod *string `json:"pullMethod,omitempty"`
	// Name of the Secret that has accessKeyId and secretKey for the registry.
	// +optional
	SecretRef *string `json:"secretRef,omitempty"`
	// Name of the ConfigMap that has the registry's certificate authorities.
	// +optional
	CertConfigMap *string `json:"certConfigMap,omitempty"`
	// Which image of several.
	// +optional
	Platform *DataVolumePlatform `json:"platform,omitempty"`
}

// DataVolumePlatform says which image of several is meant.
type DataVolumePlatform struct {
	// Architecture of the image, such as amd64.
	// +optional
	Architecture string `json:"architecture,omitempty"`
}

// DataVolumeS3 is an object of an S3 store.
type DataVolumeS3 struct {
	// URL of the object.
	URL string `json:"url"`
	// Name of the Secret that has accessKeyId and secretKey for the store.
	// +optional
	SecretRef string `json:"secretRef,omitempty"`
	// Name of the ConfigMap that has the store's certificate authorities.
	// +optional
	CertConfigMap string `json:"certConfigMap,omitempty"`
}

// DataVolumeGCS is an object of Google Cloud Storage.
type DataVolumeGCS struct {
	// URL of the object.
	URL string `json:"url"`
	// Name of the Secret that has the account's key.
	// +optional
	SecretRef string `json:"secretRef,omitempty"`
}

// DataVolumeImageIO is a disk of oVirt's.
type DataVolumeImageIO struct {
	// URL of oVirt's engine.
	URL string `json:"url"`
	// Identifier of the disk.
	DiskID string `json:"diskId"`
	// Name of the Secret that has accessKeyId and secretKey for the engine.
	// +optional
	SecretRef string `json:"secretRef,omitempty"`
	// Name of the ConfigMap that has the engine's certificate authorities.
	// +optional
	CertConfigMap string `json:"certConfigMap,omitempty"`
	// Whether the engine's certificate is not checked.
	// +optional
	InsecureSkipVerify *bool `json:"insecureSkipVerify,omitempty"`
}

// DataVolumeVDDK is a disk of VMware's.
type DataVolumeVDDK struct {
	// URL of the vCenter or ESXi host.
	// +optional
	URL string `json:"url,omitempty"`
	// UUID of the VM that has the disk.
	// +optional
	UUID string `json:"uuid,omitempty"`
	// Path of the disk's file.
	// +optional
	BackingFile string `json:"backingFile,omitempty"`
	// Thumbprint of the host's certificate.
	// +optional
	Thumbprint string `json:"thumbprint,omitempty"`
	// Name of the Secret that has user and password for the host.
	// +optional
	SecretRef string `json:"secretRef,omitempty"`
	// Image that has VMware's library.
	// +optional
	InitImageURL string `json:"initImageURL,omitempty"`
	// Name of the ConfigMap that has further arguments of the library.
	// +optional
	ExtraArgs string `json:"extraArgs,omitempty"`
}
