package v1

import kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"

// DevicePreferences are of disks, network interfaces and other devices. Each fills what a device
// leaves open, or a switch that the VM does not have.
type DevicePreferences struct {
	// Whether the guest has a graphics device.
	// +optional
	PreferredAutoattachGraphicsDevice *bool `json:"preferredAutoattachGraphicsDevice,omitempty"`
	// Whether the guest has a memory balloon.
	// +optional
	PreferredAutoattachMemBalloon *bool `json:"preferredAutoattachMemBalloon,omitempty"`
	// Whether a guest without interfaces and networks has one that is connected to the pod's.
	// +optional
	PreferredAutoattachPodInterface *bool `json:"preferredAutoattachPodInterface,omitempty"`
	// Whether the guest has a serial console.
	// +optional
	PreferredAutoattachSerialConsole *bool `json:"preferredAutoattachSerialConsole,omitempty"`
	// Whether the guest has a tablet without being given one.
	// +optional
	PreferredAutoattachInputDevice *bool `json:"preferredAutoattachInputDevice,omitempty"`
	// Whether the running guest can't be given devices. Counts before what the VM says, whose
	// field does not tell false from unset.
	// +optional
	PreferredDisableHotplug *bool `json:"preferredDisableHotplug,omitempty"`
	// Settings of parts of graphics processors.
	// +optional
	PreferredVirtualGPUOptions *kubevirtv1.VirtualGPUOptions `json:"preferredVirtualGPUOptions,omitempty"`
	// Model of the sound card, if the VM has one.
	// +optional
	PreferredSoundModel string `json:"preferredSoundModel,omitempty"`
	// Whether virtio devices are of the kind that old guests know.
	// +optional
	PreferredUseVirtioTransitional *bool `json:"preferredUseVirtioTransitional,omitempty"`
	// Bus of input devices.
	// +optional
	PreferredInputBus kubevirtv1.InputBus `json:"preferredInputBus,omitempty"`
	// Type of input devices.
	// +optional
	PreferredInputType kubevirtv1.InputType `json:"preferredInputType,omitempty"`
	// Bus of disks.
	// +optional
	PreferredDiskBus kubevirtv1.DiskBus `json:"preferredDiskBus,omitempty"`
	// Bus of LUNs.
	// +optional
	PreferredLUNBus kubevirtv1.DiskBus `json:"preferredLunBus,omitempty"`
	// Bus of CD-ROMs.
	// +optional
	PreferredCDROMBus kubevirtv1.DiskBus `json:"preferredCdromBus,omitempty"`
	// Whether each disk on the bus virtio is served by a thread of its own.
	// +optional
	PreferredDiskDedicatedIOThread *bool `json:"preferredDiskDedicatedIoThread,omitempty"`
	// Cache mode of disks.
	// +optional
	PreferredDiskCache kubevirtv1.DiskCache `json:"preferredDiskCache,omitempty"`
	// How disks are read and written.
	// +optional
	PreferredDiskIO kubevirtv1.DiskIO `json:"preferredDiskIO,omitempty"`
	// Block size of disks.
	// +optional
	PreferredDiskBlockSize *kubevirtv1.BlockSize `json:"preferredDiskBlockSize,omitempty"`
	// Model of network interfaces.
	// +optional
	PreferredInterfaceModel string `json:"preferredInterfaceModel,omitempty"`
	// A source of random numbers.
	// +optional
	PreferredRng *kubevirtv1.Rng `json:"preferredRng,omitempty"`
	// Whether disks on the bus virtio have a queue for each processor.
	// +optional
	PreferredBlockMultiQueue *bool `json:"preferredBlockMultiQueue,omitempty"`
	// Whether interfaces of the model virtio have a queue for each processor.
	// +optional
	PreferredNetworkInterfaceMultiQueue *bool `json:"preferredNetworkInterfaceMultiQueue,omitempty"`
	// A trusted platform module.
	// +optional
	PreferredTPM *kubevirtv1.TPMDevice `json:"preferredTPM,omitempty"`
	// Interfaces on the pod's network that name no binding are masqueraded.
	// +optional
	PreferredInterfaceMasquerade *kubevirtv1.InterfaceMasquerade `json:"preferredInterfaceMasquerade,omitempty"`
	// Model of panic devices. A VM that has none is given one.
	// +optional
	PreferredPanicDeviceModel *kubevirtv1.PanicDeviceModel `json:"preferredPanicDeviceModel,omitempty"`
	// Model of the graphics device.
	// +optional
	PreferredVideoType *string `json:"preferredVideoType,omitempty"`
}
