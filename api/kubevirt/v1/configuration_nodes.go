package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NetworkConfiguration is how guests are connected.
type NetworkConfiguration struct {
	// How a guest is connected that names no interface: masquerade or bridge.
	// +optional
	DefaultNetworkInterface string `json:"defaultNetworkInterface,omitempty"`
	// Ignored: slirp is no longer supported.
	// +optional
	PermitSlirpInterface *bool `json:"permitSlirpInterface,omitempty"`
	// Whether guests may be connected to the pod's network by bridge. Defaults to true.
	// +optional
	PermitBridgeInterfaceOnPodNetwork *bool `json:"permitBridgeInterfaceOnPodNetwork,omitempty"`
	// Plug-ins that connect interfaces, by the names that VMs refer to.
	// +optional
	Binding map[string]BindingPlugin `json:"binding,omitempty"`
}

// BindingPlugin connects interfaces of guests.
type BindingPlugin struct {
	// Image of a container that runs beside the guest.
	// +optional
	SidecarImage string `json:"sidecarImage,omitempty"`
	// NetworkAttachmentDefinition that the pod is given.
	// +optional
	NetworkAttachmentDefinition string `json:"networkAttachmentDefinition,omitempty"`
	// How the VMM is connected: tap (an existing tap device) or managedTap (one that the VMM
	// makes).
	// +optional
	DomainAttachmentType string `json:"domainAttachmentType,omitempty"`
	// How a guest goes on after a migration.
	// +optional
	Migration *BindingMigration `json:"migration,omitempty"`
	// What the container learns of the pod: device-info.
	// +optional
	DownwardAPI string `json:"downwardAPI,omitempty"`
	// What the guest's container needs beside its usual resources.
	// +optional
	ComputeResourceOverhead *ContainerResources `json:"computeResourceOverhead,omitempty"`
}

// BindingMigration is how a guest goes on after a migration.
type BindingMigration struct {
	// link-refresh: the link goes down and up.
	// +optional
	Method string `json:"method,omitempty"`
}

// ContainerResources are a container's resources.
type ContainerResources struct {
	// The most that the container can use.
	// +optional
	Limits corev1.ResourceList `json:"limits,omitempty"`
	// What the node sets aside.
	// +optional
	Requests corev1.ResourceList `json:"requests,omitempty"`
}

// SupportContainerResources are resources of containers beside the guest's.
type SupportContainerResources struct {
	// Which containers: hotplug-disk, container-disk, virtiofs, sidecar, vmexport or
	// guest-console-log.
	Type string `json:"type"`
	// Their resources.
	Resources ContainerResources `json:"resources"`
}

// PermittedHostDevices are devices of hosts that guests may be given.
type PermittedHostDevices struct {
	// PCI devices.
	// +optional
	PCIHostDevices []PCIHostDevice `json:"pciHostDevices,omitempty"`
	// Mediated devices.
	// +optional
	MediatedDevices []MediatedHostDevice `json:"mediatedDevices,omitempty"`
	// USB devices.
	// +optional
	USB []USBHostDevice `json:"usb,omitempty"`
}

// PCIHostDevice is PCI devices of one kind.
type PCIHostDevice struct {
	// Vendor and product, in hexadecimal, joined by a colon: 10DE:1EB8.
	PCIVendorSelector string `json:"pciVendorSelector"`
	// Resource that nodes offer them as.
	ResourceName string `json:"resourceName"`
	// Whether another device plugin offers them.
	// +optional
	ExternalResourceProvider bool `json:"externalResourceProvider,omitempty"`
}

// MediatedHostDevice is mediated devices of one type.
type MediatedHostDevice struct {
	// Name of the type.
	MDEVNameSelector string `json:"mdevNameSelector"`
	// Resource that nodes offer them as.
	ResourceName string `json:"resourceName"`
	// Whether another device plugin offers them.
	// +optional
	ExternalResourceProvider bool `json:"externalResourceProvider,omitempty"`
}

// USBHostDevice is USB devices that are given to a guest together.
type USBHostDevice struct {
	// Resource that nodes offer them as.
	ResourceName string `json:"resourceName"`
	// The devices.
	// +optional
	Selectors []USBSelector `json:"selectors,omitempty"`
	// Whether another device plugin offers them.
	// +optional
	ExternalResourceProvider bool `json:"externalResourceProvider,omitempty"`
}

// USBSelector is a USB device.
type USBSelector struct {
	// Vendor, in hexadecimal.
	Vendor string `json:"vendor"`
	// Product, in hexadecimal.
	Product string `json:"product"`
}

// MediatedDevicesConfiguration is mediated devices that nodes make.
type MediatedDevicesConfiguration struct {
	// Types of devices.
	// +optional
	MediatedDeviceTypes []string `json:"mediatedDeviceTypes,omitempty"`
	// Deprecated: use mediatedDeviceTypes.
	// +optional
	MediatedDevicesTypes []string `json:"mediatedDevicesTypes,omitempty"`
	// Types of devices of single nodes.
	// +optional
	NodeMediatedDeviceTypes []NodeMediatedDeviceTypes `json:"nodeMediatedDeviceTypes,omitempty"`
	// Whether nodes make devices. Defaults to true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
}

// NodeMediatedDeviceTypes is types of mediated devices of single nodes.
type NodeMediatedDeviceTypes struct {
	// Labels of the nodes.
	NodeSelector map[string]string `json:"nodeSelector"`
	// Types of devices.
	// +optional
	MediatedDeviceTypes []string `json:"mediatedDeviceTypes,omitempty"`
	// Deprecated: use mediatedDeviceTypes.
	// +optional
	MediatedDevicesTypes []string `json:"mediatedDevicesTypes,omitempty"`
}

// KSMConfiguration is nodes that share equal pages of memory.
type KSMConfiguration struct {
	// Labels of the nodes.
	// +optional
	NodeLabelSelector *metav1.LabelSelector `json:"nodeLabelSelector,omitempty"`
}

// ProgramConfiguration is settings of a program that take effect without a restart.
type ProgramConfiguration struct {
	// The program's client of the API server.
	// +optional
	RESTClient *RESTClientConfiguration `json:"restClient,omitempty"`
}

// RESTClientConfiguration is settings of a client of the API server.
type RESTClientConfiguration struct {
	// How often it asks.
	// +optional
	RateLimiter *RateLimiter `json:"rateLimiter,omitempty"`
}

// RateLimiter limits how often a client asks.
type RateLimiter struct {
	// A token bucket.
	// +optional
	TokenBucketRateLimiter *TokenBucketRateLimiter `json:"tokenBucketRateLimiter,omitempty"`
}

// TokenBucketRateLimiter is a token bucket.
type TokenBucketRateLimiter struct {
	// Requests a second, on average.
	QPS float32 `json:"qps"`
	// Requests at once.
	Burst int `json:"burst"`
}

// TLSConfiguration is TLS of the cluster's servers.
type TLSConfiguration struct {
	// Oldest version of TLS: VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13.
	// +optional
	// +kubebuilder:validation:Enum=VersionTLS10;VersionTLS11;VersionTLS12;VersionTLS13
	MinTLSVersion string `json:"minTLSVersion,omitempty"`
	// Cipher suites that are allowed up to TLS 1.2.
	// +optional
	// +listType=set
	Ciphers []string `json:"ciphers,omitempty"`
}

// SeccompConfiguration is system calls that VMs' pods may make.
type SeccompConfiguration struct {
	// Pods of VMs.
	// +optional
	VirtualMachineInstanceProfile *InstanceSeccompProfile `json:"virtualMachineInstanceProfile,omitempty"`
}

// InstanceSeccompProfile is system calls that VMs' pods may make.
type InstanceSeccompProfile struct {
	// The profile. If unset, none is applied.
	// +optional
	CustomProfile *CustomSeccompProfile `json:"customProfile,omitempty"`
}

// CustomSeccompProfile is a seccomp profile.
type CustomSeccompProfile struct {
	// Path of the profile below the kubelet's directory of profiles.
	// +optional
	LocalhostProfile *string `json:"localhostProfile,omitempty"`
	// Whether it is the container runtime's own.
	// +optional
	RuntimeDefaultProfile bool `json:"runtimeDefaultProfile,omitempty"`
}

// VirtualMachineOptions is what VMs do without.
type VirtualMachineOptions struct {
	// Guests don't give free memory back.
	// +optional
	DisableFreePageReporting *DisableFreePageReporting `json:"disableFreePageReporting,omitempty"`
	// Output of serial consoles goes to no log, unless a VM asks for it.
	// +optional
	DisableSerialConsoleLog *DisableSerialConsoleLog `json:"disableSerialConsoleLog,omitempty"`
}

// DisableFreePageReporting has no settings.
type DisableFreePageReporting struct{}

// DisableSerialConsoleLog has no settings.
type DisableSerialConsoleLog struct{}

// ConfidentialCompute is attestation of protected guests.
type ConfidentialCompute struct {
	// Intel Trust Domain Extensions.
	// +optional
	TDX *TDXConfiguration `json:"tdx,omitempty"`
}

// TDXConfiguration is settings of Intel Trust Domain Extensions.
type TDXConfiguration struct {
	// How guests are attested.
	// +optional
	Attestation *TDXAttestation `json:"attestation,omitempty"`
}

// TDXAttestation is how guests are attested.
type TDXAttestation struct {
	// Whether guests run only on nodes that can attest them.
	// +optional
	// +kubebuilder:default=false
	Enforced *bool `json:"enforced,omitempty"`
	// Socket of the service that makes quotes.
	// +optional
	// +kubebuilder:default="/var/run/tdx-qgs/qgs.socket"
	QGSSocketPath *string `json:"qgsSocketPath,omitempty"`
}
