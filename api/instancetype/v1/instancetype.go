package v1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// VirtualMachineInstancetype is the size of VMs of its namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=vminstancetype;vminstancetypes;vmf;vmfs,categories=all
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=vmlet"
// +kubebuilder:metadata:labels="vmlet.io/definition="
type VirtualMachineInstancetype struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`
	// The size, and what belongs to it.
	Spec VirtualMachineInstancetypeSpec `json:"spec"`
}

// VirtualMachineInstancetypeList is a list of VirtualMachineInstancetypes.
//
// +kubebuilder:object:root=true
type VirtualMachineInstancetypeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []VirtualMachineInstancetype `json:"items"`
}

// VirtualMachineClusterInstancetype is the size of VMs of any namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=vmclusterinstancetype;vmclusterinstancetypes;vmcf;vmcfs
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=vmlet"
// +kubebuilder:metadata:labels="vmlet.io/definition="
type VirtualMachineClusterInstancetype struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`
	// The size, and what belongs to it.
	Spec VirtualMachineInstancetypeSpec `json:"spec"`
}

// VirtualMachineClusterInstancetypeList is a list of VirtualMachineClusterInstancetypes.
//
// +kubebuilder:object:root=true
type VirtualMachineClusterInstancetypeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []VirtualMachineClusterInstancetype `json:"items"`
}

// VirtualMachineInstancetypeSpec is the size of a VM. What it sets can't be set in the VM.
type VirtualMachineInstancetypeSpec struct {
	// Labels that the VM's node has to have.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// The scheduler that places the VM's pod.
	// +optional
	SchedulerName string `json:"schedulerName,omitempty"`
	// The guest's processors.
	CPU CPUInstancetype `json:"cpu"`
	// The guest's memory.
	Memory MemoryInstancetype `json:"memory"`
	// Graphics processors of the host.
	// +optional
	// +listType=atomic
	GPUs []kubevirtv1.GPU `json:"gpus,omitempty"`
	// Other devices of the host.
	// +optional
	// +listType=atomic
	HostDevices []kubevirtv1.HostDevice `json:"hostDevices,omitempty"`
	// Which threads serve disks: shared, auto or supplementalPool.
	// +optional
	IOThreadsPolicy *kubevirtv1.IOThreadsPolicy `json:"ioThreadsPolicy,omitempty"`
	// Threads that serve disks.
	// +optional
	IOThreads *kubevirtv1.DiskIOThreads `json:"ioThreads,omitempty"`
	// Deprecated: use preferredLaunchSecurity of a preference. Protection of the guest's memory
	// from the host.
	// +optional
	LaunchSecurity *kubevirtv1.LaunchSecurity `json:"launchSecurity,omitempty"`
	// Annotations of the VM's instance. The VM may have them with the same values.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
}

// CPUInstancetype is the processors of a guest.
type CPUInstancetype struct {
	// Number of the guest's processors. A preference says whether they are sockets (the default),
	// cores or threads. 0 is one.
	// +kubebuilder:validation:Minimum=0
	Guest int32 `json:"guest"`
	// CPU model: a name such as Skylake-Server, host-model or host-passthrough.
	// +optional
	Model *string `json:"model,omitempty"`
	// Whether each processor of the guest has one of the node's to itself.
	// +optional
	DedicatedCPUPlacement *bool `json:"dedicatedCPUPlacement,omitempty"`
	// NUMA topology of the guest.
	// +optional
	NUMA *kubevirtv1.NUMA `json:"numa,omitempty"`
	// Whether the VMM's own threads have a processor of the node to themselves.
	// +optional
	IsolateEmulatorThread *bool `json:"isolateEmulatorThread,omitempty"`
	// Real-time scheduling of the guest's processors.
	// +optional
	Realtime *kubevirtv1.Realtime `json:"realtime,omitempty"`
	// Sockets that the running guest can be given.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MaxSockets *int32 `json:"maxSockets,omitempty"`
}

// MemoryInstancetype is the memory of a guest.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.hugepages) && has(self.overcommitPercent) && self.overcommitPercent > 0)",message="overcommitPercent and hugepages can't be set together"
type MemoryInstancetype struct {
	// Memory that the guest sees.
	Guest resource.Quantity `json:"guest"`
	// Huge pages that the guest's memory is made of.
	// +optional
	Hugepages *kubevirtv1.Hugepages `json:"hugepages,omitempty"`
	// Percentage of the guest's memory that the pod does not request.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	OvercommitPercent int `json:"overcommitPercent,omitempty"`
	// Memory that the running guest can be given.
	// +optional
	MaxGuest *resource.Quantity `json:"maxGuest,omitempty"`
}
