package spec

import "google.golang.org/protobuf/reflect/protoreflect"

// The values that fields with a fixed choice may have; the first is the
// default where it does not depend on anything else, such as the VMM.
const (
	Auto = "auto"

	HypervisorKVM       = "kvm"
	HypervisorMSHV      = "mshv"
	HypervisorEmulation = "emulation"

	VMMQEMU            = "qemu"
	VMMCloudHypervisor = "cloud-hypervisor"

	ArchAMD64 = "amd64"
	ArchARM64 = "arm64"

	FirmwareBIOS = "bios"
	FirmwareUEFI = "uefi"

	FormatRaw   = "raw"
	FormatQCOW2 = "qcow2"

	DiskTypeDisk  = "disk"
	DiskTypeCDROM = "cdrom"

	BusVirtio = "virtio"
	BusSCSI   = "scsi"
	BusSATA   = "sata"
	BusUSB    = "usb"

	CacheNone         = "none"
	CacheWriteback    = "writeback"
	CacheWritethrough = "writethrough"
	CacheUnsafe       = "unsafe"

	// How reads and writes wait: see io_submit(2) for native.
	IONative  = "native"
	IOThreads = "threads"

	// What a failed read or write does.
	ErrorStop    = "stop"
	ErrorIgnore  = "ignore"
	ErrorReport  = "report"
	ErrorNoSpace = "enospace"

	// Policies for CPU features, as libvirt has them.
	PolicyRequire  = "require"
	PolicyDisable  = "disable"
	PolicyForce    = "force"
	PolicyOptional = "optional"
	PolicyForbid   = "forbid"

	NetVirtio  = "virtio"
	NetE1000   = "e1000"
	NetE1000E  = "e1000e"
	NetIGB     = "igb"
	NetNE2K    = "ne2k_pci"
	NetPCNet   = "pcnet"
	NetRTL8139 = "rtl8139"

	RebootRestart = "restart"
	RebootEnd     = "end"

	InputTablet   = "tablet"
	InputKeyboard = "keyboard"

	VideoVGA    = "vga"
	VideoVirtio = "virtio"
	VideoBochs  = "bochs"
	VideoCirrus = "cirrus"
	VideoRAMFB  = "ramfb"

	TickDelay   = "delay"
	TickCatchup = "catchup"
	TickMerge   = "merge"
	TickDiscard = "discard"

	TrackGuest = "guest"
	TrackWall  = "wall"

	ProtocolTCP = "tcp"
	ProtocolUDP = "udp"

	WatchdogI6300ESB = "i6300esb"
	WatchdogITCO     = "itco"
	WatchdogVirtio   = "virtio"

	MemoryStrict     = "strict"
	MemoryPreferred  = "preferred"
	MemoryInterleave = "interleave"

	// A guest's network of its pod: KubeVirt's words and addresses.
	BindingMasquerade   = "masquerade"
	BindingBridge       = "bridge"
	DefaultPodInterface = "eth0"
	DefaultPodCIDR      = "10.0.2.0/24"
	DefaultPodIPv6CIDR  = "fd10:0:2::/120"

	TPMCRB = "tpm-crb"
	TPMTIS = "tpm-tis"
)

// Limits of a specification.
const (
	MaxDisks       = 64
	MaxInterfaces  = 16
	MaxPorts       = 64
	MaxFeatures    = 256
	MaxLabels      = 64
	MaxVCPUs       = 1024
	MaxMemory      = 1 << 60 // bytes: more than any processor addresses, and sums of it fit an int64
	MinMemory      = 1 << 20 // bytes; also what a size must be a multiple of
	MaxSerial      = 20      // what ATA and virtio-blk have room for: see SerialRoom
	maxSCSISerial  = 36      // what QEMU's SCSI disks show (hw/scsi/scsi-disk.c)
	MaxDeviceName  = 15      // IFNAMSIZ (linux/if.h) less its NUL
	MaxPath        = 4095    // PATH_MAX (linux/limits.h) less its NUL
	MaxCmdline     = 2047    // COMMAND_LINE_SIZE on x86 and arm64 less its NUL
	MaxCloudInit   = 256 << 10
	MinVsockCID    = 3              // VMADDR_CID_HOST (linux/vm_sockets.h) is 2
	MaxVsockCID    = 0xffffffff - 1 // VMADDR_CID_ANY is -1
	MaxGraceSecond = 24 * 60 * 60

	MaxNUMANodes   = 64  // CONFIG_NODES_SHIFT is 6 in most kernels for x86 and arm64
	MinDistance    = 11  // LOCAL_DISTANCE (linux/topology.h) is 10
	MaxDistance    = 254 // 255 is one that can't be reached (ACPI, SLIT)
	MaxHostDevices = 16
	MaxSocketPath  = 107 // sun_path (linux/un.h) less its NUL
	maxIDList      = 1 << 10

	MaxBootOrder     = MaxDisks + MaxInterfaces
	MaxInputs        = 8   // functions of a PCI slot
	MaxSystemText    = 255 // bytes; SMBIOS 2 wanted 64, and what reads it copes with more
	MaxClockOffset   = 24 * 60 * 60
	MaxTimezone      = 64
	MaxSearchDomains = 32   // as Kubernetes: MaxDNSSearchPaths
	MaxSearchText    = 2048 // bytes: MaxDNSSearchListChars
	MaxBootFile      = 127  // bytes: a field of DHCP's messages (RFC 2131) less its NUL
	MaxTFTPServer    = 253  // bytes: a name of DNS
	MaxVendorID      = 12   // bytes that CPUID has room for
	MinSpinlocks     = 4095 // of Hyper-V, as libvirt wants it
	MinUserPrefix    = 4    // of a user network, in bits
	MaxPodPrefix     = 30   // of a guest's IPv4 network in its pod: gateway and guest
	MaxPodIPv6Prefix = 126
	MaxPodPorts      = 256 // ranges of them
	MaxQueues        = 16  // of an interface
	MaxPodQueues     = 80  // of all interfaces in a pod: each takes a descriptor, and so do their sockets
	MaxNTPServers    = 16
	MaxPrivate       = 16 // options of DHCP's, each once
	minPrivateOption = 224
	maxPrivateOption = 254
	MaxPrivateValue  = 255 // bytes: the length is one
	MaxUserPrefix    = 29  // gateway, guest and name server
)

// choice is a field of a message that is one of a few words.
type choice struct {
	field string
	words []string
	// standard is the field's default; empty: that depends on more, such as the VMM.
	standard string
}

// diskChoices are those of a disk.
func diskChoices() []choice {
	return []choice{
		{"format", formats(), FormatRaw},
		{"type", []string{DiskTypeDisk, DiskTypeCDROM}, DiskTypeDisk},
		{"bus", []string{BusVirtio, BusSCSI, BusSATA, BusUSB}, ""},
		{"cache", []string{CacheNone, CacheWriteback, CacheWritethrough, CacheUnsafe}, CacheNone},
		{"io", []string{IONative, IOThreads}, ""},
		{"errorPolicy", []string{ErrorStop, ErrorIgnore, ErrorReport, ErrorNoSpace}, ""},
	}
}

// of is the field in a message.
func (c choice) of(m protoreflect.Message) protoreflect.FieldDescriptor {
	return m.Descriptor().Fields().ByJSONName(c.field)
}

func firmwares() []string { return []string{FirmwareBIOS, FirmwareUEFI} }
func formats() []string   { return []string{FormatRaw, FormatQCOW2} }
func policies() []string {
	return []string{PolicyRequire, PolicyDisable, PolicyForce, PolicyOptional, PolicyForbid}
}
func netModels() []string {
	return []string{NetVirtio, NetE1000, NetE1000E, NetIGB, NetNE2K, NetPCNet, NetRTL8139}
}
func rebootActions() []string { return []string{RebootRestart, RebootEnd} }
func inputTypes() []string    { return []string{InputTablet, InputKeyboard} }
func inputBuses() []string    { return []string{BusUSB, BusVirtio} }
func videoTypes() []string {
	return []string{VideoVGA, VideoVirtio, VideoBochs, VideoCirrus, VideoRAMFB}
}
func rtcTracks() []string { return []string{TrackGuest, TrackWall} }
func protocols() []string { return []string{ProtocolTCP, ProtocolUDP} }
func watchdogs() []string { return []string{WatchdogI6300ESB, WatchdogITCO, WatchdogVirtio} }
func watchdogActions() []string {
	return []string{"reset", "poweroff", "shutdown", "pause", "inject-nmi", "none"}
}
func memoryPolicies() []string {
	return []string{MemoryStrict, MemoryPreferred, MemoryInterleave}
}
func bindings() []string  { return []string{BindingMasquerade, BindingBridge} }
func tpmModels() []string { return []string{TPMCRB, TPMTIS} }
