package v1

// Disk is a disk, LUN or CD-ROM drive of a guest. Without any of the three it is a disk.
//
// +kubebuilder:validation:XValidation:rule="[has(self.disk), has(self.lun), has(self.cdrom)].filter(x, x).size() <= 1",message="at most one of disk, lun and cdrom may be set"
type Disk struct {
	// Name of the volume that the disk shows.
	Name string `json:"name"`
	// The volume is a disk.
	// +optional
	Disk *DiskTarget `json:"disk,omitempty"`
	// The volume is a SCSI device, to which the guest's commands go unchanged.
	// +optional
	LUN *LUNTarget `json:"lun,omitempty"`
	// The volume is in a CD-ROM drive. The drive is empty if there is no volume.
	// +optional
	CDROM *CDROMTarget `json:"cdrom,omitempty"`
	// Place in the order in which the guest tries to boot, from 1. Devices without it come
	// after those with it, in the order of the list.
	// +optional
	// +kubebuilder:validation:Minimum=1
	BootOrder *int64 `json:"bootOrder,omitempty"`
	// Serial number that the guest sees.
	// +optional
	Serial string `json:"serial,omitempty"`
	// Whether the disk is served by a thread of its own.
	// +optional
	DedicatedIOThread *bool `json:"dedicatedIOThread,omitempty"`
	// What is cached on the node: none, writethrough or writeback. The default is none where
	// the volume allows it.
	// +optional
	Cache DiskCache `json:"cache,omitempty"`
	// How the VMM reads and writes: native (asynchronous calls of the kernel) or threads.
	// +optional
	IO DiskIO `json:"io,omitempty"`
	// Tag that the guest finds the disk by in its metadata.
	// +optional
	Tag string `json:"tag,omitempty"`
	// Sizes of blocks that the guest sees.
	// +optional
	BlockSize *BlockSize `json:"blockSize,omitempty"`
	// Whether several VMs may have the disk at once.
	// +optional
	Shareable *bool `json:"shareable,omitempty"`
	// What an error of the volume does: stop (the default) pauses the guest, report tells it,
	// ignore hides the error, enospace pauses the guest if space has run out and else tells it.
	// +optional
	ErrorPolicy *DiskErrorPolicy `json:"errorPolicy,omitempty"`
	// Whether changed blocks are tracked, for incremental backups.
	// +optional
	ChangedBlockTracking *bool `json:"changedBlockTracking,omitempty"`
}

// DiskTarget is a disk.
type DiskTarget struct {
	// Bus of the disk: virtio, sata, scsi or usb. Defaults to sata on amd64, else to virtio.
	// +optional
	Bus DiskBus `json:"bus,omitempty"`
	// Whether the guest can't write to it.
	// +optional
	ReadOnly bool `json:"readonly,omitempty"`
	// Address on the guest's PCI bus, such as 0000:81:01.0.
	// +optional
	PCIAddress string `json:"pciAddress,omitempty"`
}

// LUNTarget is a SCSI device.
type LUNTarget struct {
	// Bus of the device: scsi or sata.
	// +optional
	Bus DiskBus `json:"bus,omitempty"`
	// Whether the guest can't write to it.
	// +optional
	ReadOnly bool `json:"readonly,omitempty"`
	// Whether the guest can reserve the device persistently, as clusters do.
	// +optional
	Reservation bool `json:"reservation,omitempty"`
}

// CDROMTarget is a CD-ROM drive.
type CDROMTarget struct {
	// Bus of the drive: sata, scsi or usb.
	// +optional
	Bus DiskBus `json:"bus,omitempty"`
	// Whether the guest can't write to the medium. Defaults to true.
	// +optional
	ReadOnly *bool `json:"readonly,omitempty"`
	// Whether the tray is open or closed at the start. Defaults to closed.
	// +optional
	Tray TrayState `json:"tray,omitempty"`
}

// DiskBus is the bus of a disk.
//
// +kubebuilder:validation:Enum="";virtio;sata;scsi;usb
type DiskBus string

// The buses of disks.
const (
	DiskBusVirtio DiskBus = "virtio"
	DiskBusSATA   DiskBus = "sata"
	DiskBusSCSI   DiskBus = "scsi"
	DiskBusUSB    DiskBus = "usb"
)

// TrayState is whether a drive's tray is open.
//
// +kubebuilder:validation:Enum="";open;closed
type TrayState string

// The states of a tray.
const (
	TrayOpen   TrayState = "open"
	TrayClosed TrayState = "closed"
)

// DiskCache is what a node caches of a disk.
//
// +kubebuilder:validation:Enum="";none;writethrough;writeback
type DiskCache string

// The ways to cache a disk.
const (
	DiskCacheNone         DiskCache = "none"
	DiskCacheWritethrough DiskCache = "writethrough"
	DiskCacheWriteback    DiskCache = "writeback"
)

// DiskIO is how a VMM reads and writes a disk.
//
// +kubebuilder:validation:Enum="";native;threads
type DiskIO string

// The ways to read and write a disk.
const (
	DiskIONative   DiskIO = "native"
	DiskIOThreaded DiskIO = "threads"
)

// DiskErrorPolicy is what an error of a volume does.
//
// +kubebuilder:validation:Enum=stop;ignore;report;enospace
type DiskErrorPolicy string

// The policies for errors of volumes.
const (
	DiskErrorStop     DiskErrorPolicy = "stop"
	DiskErrorIgnore   DiskErrorPolicy = "ignore"
	DiskErrorReport   DiskErrorPolicy = "report"
	DiskErrorENOSPACE DiskErrorPolicy = "enospace"
)

// BlockSize is the sizes of blocks that a guest sees.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.custom) && has(self.matchVolume))",message="at most one of custom and matchVolume may be set"
type BlockSize struct {
	// Sizes of its own.
	// +optional
	Custom *CustomBlockSize `json:"custom,omitempty"`
	// Sizes of the volume.
	// +optional
	MatchVolume *FeatureState `json:"matchVolume,omitempty"`
}

// CustomBlockSize is sizes of blocks.
type CustomBlockSize struct {
	// Smallest unit of reads and writes, in bytes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Logical int64 `json:"logical,omitempty"`
	// Unit that is written as a whole, in bytes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Physical int64 `json:"physical,omitempty"`
	// Unit in which blocks are discarded, in bytes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	DiscardGranularity *int64 `json:"discardGranularity,omitempty"`
}
