package chtest

import (
	"crypto/rand"
	"net"
	"slices"
)

// config is a VM's configuration in version 53 (vmm/src/vm_config.rs): names, types and
// defaults of what chapi has members for. See [document] for the tags.
type config struct {
	Cpus     cpusConfig      `json:"cpus" default:"{\"boot_vcpus\":1,\"max_vcpus\":1}"`
	Memory   memoryConfig    `json:"memory" default:"{\"size\":536870912}"`
	Payload  payloadConfig   `json:"payload"`
	Disks    []diskConfig    `json:"disks,omitempty"`
	Net      []netConfig     `json:"net,omitempty"`
	Rng      rngConfig       `json:"rng" default:"{\"src\":\"/dev/urandom\"}"`
	Balloon  *balloonConfig  `json:"balloon,omitempty"`
	Serial   serialConfig    `json:"serial" default:"{\"mode\":\"Null\"}"`
	Console  consoleConfig   `json:"console" default:"{\"mode\":\"Tty\"}"`
	Devices  []vfioConfig    `json:"devices,omitempty"`
	Vsock    *vsockConfig    `json:"vsock,omitempty"`
	PVPanic  bool            `json:"pvpanic" default:"false"`
	Numa     []numaConfig    `json:"numa,omitempty"`
	Watchdog bool            `json:"watchdog" default:"false"`
	Platform *platformConfig `json:"platform,omitempty"`
	Tpm      *tpmConfig      `json:"tpm,omitempty"`
	Landlock bool            `json:"landlock_enable" default:"false"`
	Rules    []landlockRule  `json:"landlock_rules,omitempty"`
}

type cpusConfig struct {
	Boot        uint32           `json:"boot_vcpus" must:""`
	Max         uint32           `json:"max_vcpus" must:""`
	Topology    *topology        `json:"topology,omitempty"`
	HyperV      bool             `json:"kvm_hyperv" default:"false"`
	MaxPhysBits uint8            `json:"max_phys_bits" default:"46"`
	Affinity    []affinityConfig `json:"affinity,omitempty"`
	Features    struct {
		AMX bool `json:"amx" default:"false"`
	} `json:"features" default:"{}"`
	Nested bool `json:"nested" default:"true"`
}

type affinityConfig struct {
	VCPU     uint32   `json:"vcpu" must:""`
	HostCPUs []uint64 `json:"host_cpus" must:""`
}

type topology struct {
	Threads  uint16 `json:"threads_per_core" must:""`
	Cores    uint16 `json:"cores_per_die" must:""`
	Dies     uint16 `json:"dies_per_package" must:""`
	Packages uint16 `json:"packages" must:""`
}

func (t topology) vcpus() uint64 {
	return uint64(t.Threads) * uint64(t.Cores) * uint64(t.Dies) * uint64(t.Packages)
}

type memoryConfig struct {
	ramConfig
	Method string       `json:"hotplug_method" default:"\"Acpi\"" oneof:"Acpi VirtioMem"`
	Zones  []zoneConfig `json:"zones,omitempty"`
	THP    bool         `json:"thp" default:"true"`
}

type zoneConfig struct {
	ramConfig
	ID       string  `json:"id" must:""`
	File     string  `json:"file,omitempty"`
	HostNode *uint32 `json:"host_numa_node,omitempty"`
}

// ramConfig is what all memory and a zone have in common.
type ramConfig struct {
	Size         uint64  `json:"size" must:""`
	Mergeable    bool    `json:"mergeable" default:"false"`
	Hotplug      *uint64 `json:"hotplug_size,omitempty"`
	Shared       bool    `json:"shared" default:"false"`
	Hugepages    bool    `json:"hugepages" default:"false"`
	HugepageSize *uint64 `json:"hugepage_size,omitempty"`
	Prefault     bool    `json:"prefault" default:"false"`
}

type payloadConfig struct {
	Firmware  string `json:"firmware,omitempty"`
	Kernel    string `json:"kernel,omitempty"`
	Cmdline   string `json:"cmdline,omitempty"`
	Initramfs string `json:"initramfs,omitempty"`
}

type pciConfig struct {
	ID       string `json:"id,omitempty"`
	Iommu    bool   `json:"iommu" default:"false"`
	Segment  uint16 `json:"pci_segment" default:"0"`
	DeviceID *uint8 `json:"pci_device_id,omitempty"`
}

func (p *pciConfig) pci() *pciConfig { return p }

type diskConfig struct {
	pciConfig
	Path            string `json:"path,omitempty"`
	Readonly        bool   `json:"readonly" default:"false"`
	Direct          bool   `json:"direct" default:"false"`
	Queues          uint64 `json:"num_queues" default:"1"`
	QueueSize       uint16 `json:"queue_size" default:"128"`
	NoIOUring       bool   `json:"disable_io_uring" default:"false"`
	NoAIO           bool   `json:"disable_aio" default:"false"`
	Serial          string `json:"serial,omitempty"`
	BackingFiles    bool   `json:"backing_files" default:"false"`
	Sparse          bool   `json:"sparse" default:"true"`
	ImageType       string `json:"image_type" default:"\"Unknown\"" oneof:"FixedVhd Qcow2 Raw Vhdx Unknown"`
	LockGranularity string `json:"lock_granularity" default:"\"ByteRange\"" oneof:"ByteRange Full"`
}

type netConfig struct {
	pciConfig
	Tap       string  `json:"tap,omitempty"`
	MAC       string  `json:"mac,omitempty" mac:""`
	MTU       *uint16 `json:"mtu,omitempty"`
	Queues    uint64  `json:"num_queues" default:"2"`
	QueueSize uint16  `json:"queue_size" default:"256"`
	Fds       []int   `json:"fds,omitempty"`
	TSO       bool    `json:"offload_tso" default:"true"`
	UFO       bool    `json:"offload_ufo" default:"true"`
	Csum      bool    `json:"offload_csum" default:"true"`
}

type rngConfig struct {
	pciConfig
	Src string `json:"src" must:""`
}

type balloonConfig struct {
	pciConfig
	Size      uint64 `json:"size" must:""`
	Deflate   bool   `json:"deflate_on_oom" default:"false"`
	Reporting bool   `json:"free_page_reporting" default:"false"`
}

type serialConfig struct {
	Mode   string `json:"mode" must:"" oneof:"Off Pty Tty File Socket Null"`
	File   string `json:"file,omitempty"`
	Socket string `json:"socket,omitempty"`
}

type consoleConfig struct {
	serialConfig
	pciConfig
}

type vfioConfig struct {
	pciConfig
	Path string `json:"path,omitempty"`
}

type vsockConfig struct {
	pciConfig
	CID    uint32 `json:"cid" must:""`
	Socket string `json:"socket" must:""`
}

type numaConfig struct {
	ID          uint32     `json:"guest_numa_id" must:""`
	Cpus        []uint32   `json:"cpus,omitempty"`
	Distances   []distance `json:"distances,omitempty"`
	MemoryZones []string   `json:"memory_zones,omitempty"`
	PciSegments []uint16   `json:"pci_segments,omitempty"`
}

type distance struct {
	To       uint32 `json:"destination" default:"0"`
	Distance uint8  `json:"distance" default:"0"`
}

type platformConfig struct {
	Segments uint16   `json:"num_pci_segments" default:"1"`
	Serial   string   `json:"system_serial_number,omitempty" alias:"serial_number"`
	UUID     string   `json:"system_uuid,omitempty" alias:"uuid"`
	OEM      []string `json:"oem_strings,omitempty"`
	IOMMUFD  bool     `json:"iommufd" default:"false"`
}

type tpmConfig struct {
	Socket string `json:"socket" must:""`
}

type landlockRule struct {
	Path   string `json:"path" must:""`
	Access string `json:"access" must:""`
}

// deviceConfig is a disk, network, vsock or host device: what can come and go.
type deviceConfig interface{ pci() *pciConfig }

// devices are those of a configuration, in the order in which a boot makes them.
func (c *config) devices() (all []deviceConfig) {
	for i := range c.Disks {
		all = append(all, &c.Disks[i])
	}
	for i := range c.Net {
		all = append(all, &c.Net[i])
	}
	if c.Vsock != nil {
		all = append(all, c.Vsock)
	}
	for i := range c.Devices {
		all = append(all, &c.Devices[i])
	}
	return all
}

// prefix begins the id of a device that has none (vmm/src/device_manager.rs).
func prefix(d deviceConfig) string {
	switch d.(type) {
	case *diskConfig:
		return "_disk"
	case *netConfig:
		return "_net"
	case *vsockConfig:
		return "_vsock"
	}
	return "_vfio"
}

// with returns a copy that has one device more.
func (c *config) with(d deviceConfig) *config {
	next := *c
	switch d := d.(type) {
	case *diskConfig:
		next.Disks = append(slices.Clip(c.Disks), *d)
	case *netConfig:
		next.Net = append(slices.Clip(c.Net), *d)
	case *vsockConfig:
		next.Vsock = d
	case *vfioConfig:
		next.Devices = append(slices.Clip(c.Devices), *d)
	}
	return &next
}

// forget takes all devices of a kind out.
func (c *config) forget(like deviceConfig) {
	switch like.(type) {
	case *diskConfig:
		c.Disks = nil
	case *netConfig:
		c.Net = nil
	case *vsockConfig:
		c.Vsock = nil
	case *vfioConfig:
		c.Devices = nil
	}
}

// remove takes the devices of an id out, and reports whether there were any.
func (c *config) remove(id string) bool {
	before := len(c.devices())
	c.Disks = slices.DeleteFunc(c.Disks, func(d diskConfig) bool { return d.ID == id })
	c.Net = slices.DeleteFunc(c.Net, func(d netConfig) bool { return d.ID == id })
	c.Devices = slices.DeleteFunc(c.Devices, func(d vfioConfig) bool { return d.ID == id })
	if c.Vsock != nil && c.Vsock.ID == id {
		c.Vsock = nil
	}
	return len(c.devices()) < before
}

// address gives a network device without one a MAC address.
func (n *netConfig) address() {
	if n.MAC == "" {
		mac := make(net.HardwareAddr, 6)
		rand.Read(mac) // never fails
		mac[0] = mac[0]&^1 | 2
		n.MAC = mac.String()
	}
}

// boot is the VM's memory in bytes.
func (m *memoryConfig) boot() uint64 {
	size := m.Size
	for _, z := range m.Zones {
		size += z.Size
	}
	return size
}

// Bodies of calls (vmm/src/api/mod.rs, vmm/src/config.rs).
type (
	resizeBody struct {
		VCPUs   *uint32 `json:"desired_vcpus"`
		RAM     *uint64 `json:"desired_ram"`
		Balloon *uint64 `json:"desired_balloon"`
	}
	resizeZoneBody struct {
		ID   string `json:"id" must:""`
		Size uint64 `json:"desired_ram" must:""`
	}
	removeBody struct {
		ID string `json:"id" must:""`
	}
	snapshotBody struct {
		URL string `json:"destination_url" must:""`
	}
	restoreBody struct {
		URL      string       `json:"source_url" must:""`
		Prefault bool         `json:"prefault" default:"false"`
		Resume   bool         `json:"resume" default:"false"`
		Mode     string       `json:"memory_restore_mode" default:"\"Copy\"" oneof:"Copy OnDemand"`
		Nets     []restoreNet `json:"net_fds"`
	}
	restoreNet struct {
		ID    string `json:"id" must:""`
		Count uint64 `json:"num_fds" default:"0"`
		Fds   []int  `json:"fds"` // of the client's, and so of no meaning
	}
)
