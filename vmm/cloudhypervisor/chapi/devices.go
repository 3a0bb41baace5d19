package chapi

// PCI is what all devices on PCI have in common.
type PCI struct {
	// ID names the device in calls, counters and events; the VMM makes one up for
	// a device without. It must not begin with two underscores.
	ID      string `json:"id,omitempty"`
	IOMMU   bool   `json:"iommu,omitempty"` // behind the guest's virtual IOMMU
	Segment uint16 `json:"pci_segment,omitempty"`
	// Slot is the device's number on its bus; default: the first that is free.
	Slot *uint8 `json:"pci_device_id,omitempty"`
}

// ImageType is a disk image's format.
type ImageType string

// The formats that vmlet has disks in. Without one the VMM looks at the image's
// first bytes, which a guest can write: a raw image must be called that.
const (
	ImageRaw   ImageType = "Raw"
	ImageQCOW2 ImageType = "Qcow2"
)

// Disk is a virtio-blk device.
type Disk struct {
	PCI
	Path      string `json:"path,omitempty"`
	ReadOnly  bool   `json:"readonly,omitempty"`
	Direct    bool   `json:"direct,omitempty"`     // O_DIRECT
	NumQueues int    `json:"num_queues,omitempty"` // default 1
	QueueSize uint16 `json:"queue_size,omitempty"` // default 128
	Serial    string `json:"serial,omitempty"`     // what the guest sees
	// BackingFiles allows a qcow2 image to name another that it is based on.
	BackingFiles bool      `json:"backing_files,omitempty"`
	Type         ImageType `json:"image_type,omitempty"`
	// Sparse passes discards and zeroes on as holes; default true.
	Sparse *bool `json:"sparse,omitempty"`
	// DisableIOUring and DisableAIO make the VMM do I/O the next simpler way.
	DisableIOUring bool  `json:"disable_io_uring,omitempty"`
	DisableAIO     bool  `json:"disable_aio,omitempty"`
	Extra          Extra `json:"-"`
}

// Net is a virtio-net device. Its taps are files that go with vm.add-net, or Tap.
type Net struct {
	PCI
	Tap string `json:"tap,omitempty"` // an interface's name
	MAC string `json:"mac,omitempty"` // the guest's; default: a random one
	MTU uint16 `json:"mtu,omitempty"`
	// NumQueues counts those for receiving and those for sending; default 2.
	NumQueues int    `json:"num_queues,omitempty"`
	QueueSize uint16 `json:"queue_size,omitempty"` // default 256
	// The offloads that the guest is offered; default true.
	OffloadTSO  *bool `json:"offload_tso,omitempty"`
	OffloadUFO  *bool `json:"offload_ufo,omitempty"`
	OffloadCsum *bool `json:"offload_csum,omitempty"`
	Extra       Extra `json:"-"`
}

// RNG is a virtio-rng device.
type RNG struct {
	PCI
	Source string `json:"src"` // the host's file, such as /dev/urandom
	Extra  Extra  `json:"-"`
}

// Balloon is a virtio-balloon device.
type Balloon struct {
	PCI
	Size              uint64 `json:"size"` // what it takes from the guest at boot
	DeflateOnOOM      bool   `json:"deflate_on_oom,omitempty"`
	FreePageReporting bool   `json:"free_page_reporting,omitempty"`
	Extra             Extra  `json:"-"`
}

// ConsoleMode is where a console's output goes and its input comes from.
type ConsoleMode string

// The modes. File takes output only; Socket listens on a unix socket and serves one
// client at a time (serial port only); TTY is the VMM's own standard input and output.
const (
	ConsoleOff    ConsoleMode = "Off"
	ConsoleNull   ConsoleMode = "Null"
	ConsoleTTY    ConsoleMode = "Tty"
	ConsolePTY    ConsoleMode = "Pty"
	ConsoleFile   ConsoleMode = "File"
	ConsoleSocket ConsoleMode = "Socket"
)

// Console is the serial port, which is not on PCI, or the virtio console.
type Console struct {
	PCI
	Mode   ConsoleMode `json:"mode"`
	File   string      `json:"file,omitempty"`   // with ConsoleFile
	Socket string      `json:"socket,omitempty"` // with ConsoleSocket
	Extra  Extra       `json:"-"`
}

// Device is a host's PCI device, handed over by VFIO.
type Device struct {
	PCI
	Path  string `json:"path,omitempty"` // its folder in sysfs
	Extra Extra  `json:"-"`
}

// Vsock is the virtio-vsock device. A VM has one at most. The host reaches
// the guest's port N by a connection to Socket and the line "CONNECT N"; the guest's
// connections to the host's port N come to a socket at Socket + "_N".
type Vsock struct {
	PCI
	CID    uint32 `json:"cid"` // the guest's address, 3 or more
	Socket string `json:"socket"`
	Extra  Extra  `json:"-"`
}

// TPM is a TPM 2.0 whose work swtpm does, behind its control socket.
type TPM struct {
	Socket string `json:"socket"`
	Extra  Extra  `json:"-"`
}
