package v1

// Devices are the devices of a guest.
type Devices struct {
	// Disks, in the order of their names in the guest. A volume that has no disk and no file
	// system is given a disk.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Disks []Disk `json:"disks,omitempty"`
	// Network interfaces. Each is connected to the network of the same name.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Interfaces []Interface `json:"interfaces,omitempty"`
	// Volumes shared with the guest as file systems.
	// +optional
	Filesystems []Filesystem `json:"filesystems,omitempty"`
	// Graphics processors of the host.
	// +optional
	GPUs []GPU `json:"gpus,omitempty"`
	// Other devices of the host.
	// +optional
	HostDevices []HostDevice `json:"hostDevices,omitempty"`
	// Keyboards and tablets.
	// +optional
	Inputs []Input `json:"inputs,omitempty"`
	// A device that acts if the guest stops answering it.
	// +optional
	Watchdog *Watchdog `json:"watchdog,omitempty"`
	// A source of random numbers.
	// +optional
	Rng *Rng `json:"rng,omitempty"`
	// A trusted platform module.
	// +optional
	TPM *TPMDevice `json:"tpm,omitempty"`
	// The graphics device.
	// +optional
	Video *VideoDevice `json:"video,omitempty"`
	// A sound card.
	// +optional
	Sound *SoundDevice `json:"sound,omitempty"`
	// Devices through which the guest reports that it has crashed.
	// +optional
	PanicDevices []PanicDevice `json:"panicDevices,omitempty"`
	// USB devices of the user's own computer, passed on by virtctl usbredir.
	// +optional
	ClientPassthrough *ClientPassthrough `json:"clientPassthrough,omitempty"`
	// A channel through which the guest reads metrics of its host.
	// +optional
	DownwardMetrics *DownwardMetrics `json:"downwardMetrics,omitempty"`

	// Whether a guest without interfaces and networks has one that is connected to the pod's.
	// Defaults to true.
	// +optional
	AutoattachPodInterface *bool `json:"autoattachPodInterface,omitempty"`
	// Whether the guest has a graphics device, which VNC shows. Defaults to true.
	// +optional
	AutoattachGraphicsDevice *bool `json:"autoattachGraphicsDevice,omitempty"`
	// Whether the guest has a serial console. Defaults to true.
	// +optional
	AutoattachSerialConsole *bool `json:"autoattachSerialConsole,omitempty"`
	// Whether output of the serial console goes to the log of a container of the pod. Defaults
	// to the cluster's choice.
	// +optional
	LogSerialConsole *bool `json:"logSerialConsole,omitempty"`
	// Whether the guest has a memory balloon. Defaults to true.
	// +optional
	AutoattachMemBalloon *bool `json:"autoattachMemBalloon,omitempty"`
	// Whether the guest has a tablet without being given one in inputs. Defaults to false.
	// +optional
	AutoattachInputDevice *bool `json:"autoattachInputDevice,omitempty"`
	// Whether the guest has a vsock device. Defaults to false.
	// +optional
	AutoattachVSOCK *bool `json:"autoattachVSOCK,omitempty"`
	// Whether disks on the bus virtio have a queue for each processor.
	// +optional
	BlockMultiQueue *bool `json:"blockMultiQueue,omitempty"`
	// Whether interfaces of the model virtio have a queue for each processor.
	// +optional
	NetworkInterfaceMultiqueue *bool `json:"networkInterfaceMultiqueue,omitempty"`
	// Whether virtio devices are of the kind that old guests know.
	// +optional
	UseVirtioTransitional *bool `json:"useVirtioTransitional,omitempty"`
	// Whether the running guest can't be given devices.
	// +optional
	DisableHotplug bool `json:"disableHotplug,omitempty"`
}

// Filesystem is a volume shared with the guest as a file system.
type Filesystem struct {
	// Name of the volume, and the tag that the guest mounts it by.
	Name string `json:"name"`
	// It is shared by virtiofs.
	Virtiofs *Virtiofs `json:"virtiofs"`
}

// Virtiofs has no settings.
type Virtiofs struct{}

// GPU is a graphics processor of the host, whole or in part.
type GPU struct {
	// Name of the device in the specification.
	Name string `json:"name"`
	// Name of the resource that the node offers.
	// +optional
	DeviceName string `json:"deviceName,omitempty"`
	// The device comes from a resource claim.
	ClaimRequest `json:",inline"`
	// Settings of a part of a graphics processor.
	// +optional
	VirtualGPUOptions *VirtualGPUOptions `json:"virtualGPUOptions,omitempty"`
	// Tag that the guest finds the device by in its metadata.
	// +optional
	Tag string `json:"tag,omitempty"`
}

// VirtualGPUOptions are settings of a part of a graphics processor.
type VirtualGPUOptions struct {
	// The display of the device.
	// +optional
	Display *VirtualGPUDisplay `json:"display,omitempty"`
}

// VirtualGPUDisplay is the display of a part of a graphics processor.
type VirtualGPUDisplay struct {
	// Whether VNC shows it. Defaults to true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// Output before the guest's driver is loaded.
	// +optional
	RAMFB *FeatureState `json:"ramFB,omitempty"`
}

// HostDevice is a device of the host.
type HostDevice struct {
	// Name of the device in the specification.
	Name string `json:"name"`
	// Name of the resource that the node offers.
	// +optional
	DeviceName string `json:"deviceName,omitempty"`
	// The device comes from a resource claim.
	ClaimRequest `json:",inline"`
	// Tag that the guest finds the device by in its metadata.
	// +optional
	Tag string `json:"tag,omitempty"`
}

// Input is a keyboard or tablet.
type Input struct {
	// Name of the device in the specification.
	Name string `json:"name"`
	// tablet or keyboard.
	Type InputType `json:"type"`
	// Bus of the device: usb (the default) or virtio.
	// +optional
	Bus InputBus `json:"bus,omitempty"`
}

// InputType is what an input device is.
//
// +kubebuilder:validation:Enum=tablet;keyboard
type InputType string

// The types of input devices.
const (
	InputTablet   InputType = "tablet"
	InputKeyboard InputType = "keyboard"
)

// InputBus is the bus of an input device.
//
// +kubebuilder:validation:Enum="";usb;virtio
type InputBus string

// The buses of input devices.
const (
	InputBusUSB    InputBus = "usb"
	InputBusVirtio InputBus = "virtio"
)

// Watchdog acts if the guest stops answering it.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.i6300esb) && has(self.diag288))",message="at most one of i6300esb and diag288 may be set"
type Watchdog struct {
	// Name of the device in the specification.
	Name string `json:"name"`
	// Intel's watchdog on the PCI bus.
	// +optional
	I6300ESB *WatchdogModel `json:"i6300esb,omitempty"`
	// The watchdog of s390x.
	// +optional
	Diag288 *WatchdogModel `json:"diag288,omitempty"`
}

// WatchdogModel is what a watchdog does.
type WatchdogModel struct {
	// What becomes of the guest: reset (the default), poweroff (ends it at once) or shutdown
	// (asks it to shut down).
	// +optional
	Action WatchdogAction `json:"action,omitempty"`
}

// WatchdogAction is what a watchdog does to its guest.
//
// +kubebuilder:validation:Enum="";poweroff;reset;shutdown
type WatchdogAction string

// The actions of a watchdog.
const (
	WatchdogPoweroff WatchdogAction = "poweroff"
	WatchdogReset    WatchdogAction = "reset"
	WatchdogShutdown WatchdogAction = "shutdown"
)

// Rng has no settings.
type Rng struct{}

// TPMDevice is a trusted platform module.
type TPMDevice struct {
	// Whether the guest has it. Defaults to true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// Whether its state outlives the instance.
	// +optional
	Persistent *bool `json:"persistent,omitempty"`
}

// VideoDevice is the graphics device.
type VideoDevice struct {
	// Model of the device, such as virtio, vga, bochs, cirrus or ramfb. The default follows from
	// architecture and firmware.
	// +optional
	Type string `json:"type,omitempty"`
}

// SoundDevice is a sound card.
type SoundDevice struct {
	// Name of the device in the specification.
	Name string `json:"name"`
	// Model of the card: ich9 (the default) or ac97.
	// +optional
	Model string `json:"model,omitempty"`
}

// PanicDevice is a device through which the guest reports that it has crashed.
type PanicDevice struct {
	// Model of the device: hyperv, isa or pvpanic. The default follows from the architecture.
	// +optional
	Model *PanicDeviceModel `json:"model,omitempty"`
}

// PanicDeviceModel is the model of a panic device.
//
// +kubebuilder:validation:Enum=hyperv;isa;pvpanic
type PanicDeviceModel string

// The models of panic devices.
const (
	PanicHyperv  PanicDeviceModel = "hyperv"
	PanicISA     PanicDeviceModel = "isa"
	PanicPVPanic PanicDeviceModel = "pvpanic"
)

// ClientPassthrough has no settings.
type ClientPassthrough struct{}

// DownwardMetrics has no settings.
type DownwardMetrics struct{}
