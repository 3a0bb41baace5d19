package draw

import (
	"fmt"

	"github.com/vmlet/vmlet/sysfs"
)

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

// hosts are made-up machines by the name of their golden files.
func hosts() map[string]*sysfs.Host {
	return map[string]*sysfs.Host{
		"vm": vm(), "laptop": laptop(), "server": server(), "arm64": arm64(),
		"memory-only-node": memoryOnlyNode(), "offline": offline(), "no-numa": noNUMA(), "thousands": thousands(),
		"crossing": crossing(), "hostile": hostile(), "empty": {},
	}
}

// maker builds a Host core by core.
type maker struct{ sysfs.Host }

// core adds a core with its CPUs and returns it. Package and node get the CPUs too.
func (m *maker) core(pkg, node int, kind string, cpus ...int) *sysfs.Core {
	id := len(m.Cores)
	for thread, cpu := range cpus {
		m.CPUs = append(m.CPUs, sysfs.CPU{
			ID: cpu, Online: true, Allowed: true, Core: id, Thread: thread,
			Cluster: -1, Die: -1, Package: pkg, Node: node, Kind: kind,
		})
	}
	m.Cores = append(m.Cores, sysfs.Core{ID: id, KernelID: id, Package: pkg, Die: -1, Cluster: -1, Kind: kind, CPUs: cpus})
	if pkg >= 0 {
		for len(m.Packages) <= pkg {
			m.Packages = append(m.Packages, sysfs.Package{ID: len(m.Packages)})
		}
		m.Packages[pkg].CPUs = union(append(m.Packages[pkg].CPUs, cpus...))
	}
	if node >= 0 {
		m.node(node, 0, 0)
		m.Nodes[node].CPUs = union(append(m.Nodes[node].CPUs, cpus...))
	}
	return &m.Cores[id]
}

// node sets a node's memory if it isn't 0.
func (m *maker) node(id int, memory, free uint64, pages ...sysfs.HugePages) {
	for len(m.Nodes) <= id {
		m.Nodes = append(m.Nodes, sysfs.Node{ID: len(m.Nodes), Online: true, Allowed: true})
	}
	if memory > 0 {
		n := &m.Nodes[id]
		n.Memory, n.MemoryFree, n.HugePages = memory, free, pages
	}
}

func (m *maker) cache(level int, kind string, size uint64, cpus ...int) {
	m.Caches = append(m.Caches, sysfs.Cache{
		ID: len(m.Caches), KernelID: -1, Level: level, Type: kind, Size: size, LineSize: 64, CPUs: union(cpus),
	})
}

// private adds the caches that a core has for itself.
func (m *maker) private(data, instructions, second uint64, cpus ...int) {
	m.cache(1, "data", data, cpus...)
	m.cache(1, "instruction", instructions, cpus...)
	if second > 0 {
		m.cache(2, "unified", second, cpus...)
	}
}

func (m *maker) pci(node int, class uint32, name string, vendor, device uint16, driver string, group int, made ...string) *sysfs.PCIDevice {
	p := sysfs.PCIDevice{
		Address: fmt.Sprintf("0000:%02x:00.0", len(m.PCIDevices)+1), Class: class, ClassName: name,
		Vendor: vendor, Device: device, Driver: driver, Node: node, IOMMUGroup: group,
	}
	if class>>16 == 2 {
		p.Interfaces = made
	} else {
		p.BlockDevices = made
	}
	m.PCIDevices = append(m.PCIDevices, p)
	return &m.PCIDevices[len(m.PCIDevices)-1]
}

func (m *maker) all() sysfs.IDList {
	var ids sysfs.IDList
	for _, c := range m.CPUs {
		ids = append(ids, c.ID)
	}
	return union(ids)
}

// vm is a small virtual machine.
func vm() *sysfs.Host {
	m := &maker{}
	m.Architecture = "amd64"
	m.Kernel.Release = "6.12.0"
	m.Processor.ModelName = "AMD EPYC 9654 96-Core Processor"
	m.Virtualization.Guest = true
	for i := range 2 {
		m.core(0, 0, "", i)
		m.private(32*kib, 32*kib, mib, i)
	}
	m.cache(3, "unified", 32*mib, 0, 1)
	m.node(0, 8*gib, 5*gib+300*mib, sysfs.HugePages{PageSize: 2 * mib, Total: 512, Free: 384})
	m.Nodes[0].Distances = []int{10}
	m.Memory = sysfs.Memory{Total: 8 * gib, Available: 6 * gib, TransparentHugePages: "madvise"}
	m.pci(-1, 0x060000, "host bridge", 0x8086, 0x1237, "", -1)
	m.pci(-1, 0x010000, "SCSI controller", 0x1af4, 0x1042, "virtio-pci", -1, "vda")
	m.pci(-1, 0x020000, "Ethernet controller", 0x1af4, 0x1041, "virtio-pci", -1, "eth0")
	return &m.Host
}

// laptop is a hybrid: 6 cores with two threads each, 8 without in clusters of four.
func laptop() *sysfs.Host {
	m := &maker{}
	m.Architecture = "amd64"
	m.Kernel.Release = "6.12.9-200.fc41.x86_64"
	m.Processor.ModelName = "12th Gen Intel(R) Core(TM) i7-12800H"
	for i := range 6 {
		m.core(0, 0, "performance", 2*i, 2*i+1)
		m.private(48*kib, 32*kib, 1280*kib, 2*i, 2*i+1)
	}
	for i := 12; i < 20; i++ {
		m.core(0, 0, "efficiency", i)
		m.private(32*kib, 64*kib, 0, i)
	}
	for c := range 2 {
		first := 12 + 4*c
		cpus := sysfs.IDList{first, first + 1, first + 2, first + 3}
		m.Clusters = append(m.Clusters, sysfs.Cluster{ID: c, CPUs: cpus})
		m.cache(2, "unified", 2*mib, cpus...)
	}
	m.Clusters = append(m.Clusters, sysfs.Cluster{ID: 2, CPUs: sysfs.IDList{0, 1}}) // a core of its own
	m.cache(3, "unified", 24*mib, m.all()...)
	m.node(0, 32*gib, 11*gib)
	m.Memory = sysfs.Memory{Total: 32 * gib, Available: 20 * gib, SwapTotal: 8 * gib, SwapFree: 8 * gib}
	m.pci(-1, 0x030000, "VGA controller", 0x8086, 0x46a6, "i915", 0)
	m.pci(-1, 0x028000, "network controller", 0x8086, 0x51f0, "iwlwifi", 11, "wlp0s20f3")
	m.pci(-1, 0x010802, "NVMe controller", 0x144d, 0xa80a, "nvme", 14, "nvme0n1")
	m.pci(-1, 0x040300, "audio device", 0x8086, 0x51c8, "snd_hda_intel", 15)
	m.USBDevices = []sysfs.USBDevice{
		{Name: "usb1", RootHub: true, Class: 9},
		{Name: "1-4", Vendor: 0x046d, Product: 0xc52b, Manufacturer: "Logitech", ProductName: "USB Receiver", Driver: "usb"},
	}
	return &m.Host
}

// server has two packages of four nodes, 128 cores of two threads, and devices.
func server() *sysfs.Host {
	m := &maker{}
	m.Architecture = "amd64"
	m.Kernel.Release = "6.12.0-55.el10.x86_64"
	m.Processor.ModelName = "AMD EPYC 7763 64-Core Processor"
	for core := range 128 {
		m.core(core/64, core/16, "", core, core+128)
		m.private(32*kib, 32*kib, 512*kib, core, core+128)
		if core%8 == 0 {
			var cpus []int
			for i := range 8 {
				cpus = append(cpus, core+i, core+i+128)
			}
			m.cache(3, "unified", 32*mib, cpus...)
		}
	}
	for n := range 8 {
		free := uint64(20+7*n) * gib
		m.node(n, 128*gib, free, sysfs.HugePages{PageSize: 2 * mib}, sysfs.HugePages{PageSize: gib, Total: 48, Free: uint64(48 - 6*n)})
		for to := range 8 {
			switch {
			case n == to:
				m.Nodes[n].Distances = append(m.Nodes[n].Distances, 10)
			case n/4 == to/4:
				m.Nodes[n].Distances = append(m.Nodes[n].Distances, 12)
			default:
				m.Nodes[n].Distances = append(m.Nodes[n].Distances, 32)
			}
		}
	}
	for i := range m.CPUs {
		c := &m.CPUs[i]
		c.Isolated = c.Node == 1 || c.Node == 5
		if c.Isolated {
			m.CPUSets.Isolated = union(append(m.CPUSets.Isolated, c.ID))
		}
	}
	m.Memory = sysfs.Memory{Total: 1024 * gib, Available: 350 * gib, TransparentHugePages: "madvise"}
	m.HugePages = []sysfs.HugePages{{PageSize: gib, Total: 384, Free: 216}}
	m.serverDevices()
	return &m.Host
}

func (m *maker) serverDevices() {
	group := 20
	next := func() int { group++; return group }
	for _, node := range []int{1, 3, 5, 7} {
		m.pci(node, 0x060400, "PCI bridge", 0x1022, 0x1483, "pcieport", next())
		m.pci(node, 0x030200, "3D controller", 0x10de, 0x2330, "vfio-pci", next())
		m.pci(node, 0x030200, "3D controller", 0x10de, 0x2330, "nvidia", next())
	}
	for i, node := range []int{0, 4} {
		nic := m.pci(node, 0x020000, "Ethernet controller", 0x15b3, 0x101d, "mlx5_core", next(), fmt.Sprintf("ens%df0np0", i+1))
		nic.SRIOV = &sysfs.SRIOV{Total: 16}
		pf := nic.Address
		for f := range 8 {
			vf := m.pci(node, 0x020000, "Ethernet controller", 0x15b3, 0x101e, []string{"mlx5_core", "vfio-pci"}[f%2], next())
			vf.PhysicalFunction = pf
		}
	}
	for i := range 8 {
		m.pci(2+4*(i/4), 0x010802, "NVMe controller", 0x144d, 0xa80a, "nvme", next(), fmt.Sprintf("nvme%dn1", i))
	}
	m.pci(6, 0x120000, "processing accelerator", 0x8086, 0x0b25, "idxd", 90)
	m.pci(6, 0x100000, "network encryption device", 0x8086, 0x4940, "4xxx", 90)
	m.pci(-1, 0x030000, "VGA controller", 0x1a03, 0x2000, "ast", next())
	m.MediatedDevices = []sysfs.MediatedDevice{{Parent: m.PCIDevices[2].Address}, {Parent: m.PCIDevices[2].Address}}
}

// arm64 has clusters of four, of two capacities, and no package's name.
func arm64() *sysfs.Host {
	m := &maker{}
	m.Architecture = "arm64"
	m.Kernel.Release = "6.6.30"
	m.Processor.Vendor = "0x41"
	for i := range 8 {
		m.core(0, 0, "", i)
		m.CPUs[i].Capacity = []int{446, 1024}[i/4]
		m.private(64*kib, 64*kib, 0, i)
		if i%4 == 3 {
			cpus := sysfs.IDList{i - 3, i - 2, i - 1, i}
			m.Clusters = append(m.Clusters, sysfs.Cluster{ID: i / 4, CPUs: cpus})
			m.cache(2, "unified", []uint64{512 * kib, 2 * mib}[i/4], cpus...)
		}
	}
	m.node(0, 16*gib, 9*gib, sysfs.HugePages{PageSize: 64 * kib}, sysfs.HugePages{PageSize: 512 * mib, Total: 4, Free: 4})
	return &m.Host
}

// memoryOnlyNode has CXL memory as a node without CPUs, and a node without memory.
func memoryOnlyNode() *sysfs.Host {
	m := &maker{}
	m.Architecture = "amd64"
	m.Processor.ModelName = "Intel(R) Xeon(R) 6980P"
	for i := range 4 {
		m.core(i/2, i/2, "", i, i+4)
		m.private(48*kib, 64*kib, 2*mib, i, i+4)
	}
	m.cache(3, "unified", 504*mib, 0, 1, 4, 5)
	m.cache(3, "unified", 504*mib, 2, 3, 6, 7)
	m.node(0, 256*gib, 200*gib)
	m.node(2, 512*gib, 512*gib)
	m.Nodes[0].Distances = []int{10, 21, 14}
	m.Nodes[1].Distances = []int{21, 10, 24}
	m.Nodes[2].Distances = []int{14, 24, 10}
	m.pci(2, 0x050210, "CXL memory device", 0x1344, 0x6400, "cxl_pci", 7)
	return &m.Host
}

// offline has CPUs in every state, cpu0 offline, and a cgroup that keeps some.
func offline() *sysfs.Host {
	m := &maker{}
	m.Architecture = "amd64"
	m.Processor.ModelName = "Intel(R) Xeon(R) Gold 6338"
	for i := range 6 {
		m.core(0, 0, "", i, i+6)
	}
	m.Cores = m.Cores[1:]
	for i := range m.CPUs {
		c := &m.CPUs[i]
		switch c.ID {
		case 0, 6:
			c.Online, c.Core, c.Package = false, -1, -1
		case 2, 8:
			c.Isolated = true
		case 3:
			c.Allowed = false
		case 4:
			c.Isolated, c.Allowed = true, false
		}
	}
	m.Packages[0].CPUs = sysfs.IDList{1, 2, 3, 4, 5, 7, 8, 9, 10, 11}
	m.CPUSets.Offline = sysfs.IDList{0, 6}
	m.CPUSets.Isolated = sysfs.IDList{2, 4, 8}
	m.CPUSets.NoHZFull = sysfs.IDList{2, 8}
	m.node(0, 64*gib, 60*gib)
	m.node(1, 0, 0)
	m.Nodes[1].Online = false
	m.Notes = []sysfs.Note{{Path: "/sys/devices/system/cpu/cpu3/cache", Message: "permission denied"}}
	return &m.Host
}

// noNUMA is a kernel without NUMA, and caches that it doesn't tell.
func noNUMA() *sysfs.Host {
	m := &maker{}
	m.Architecture = "s390x"
	m.Kernel.Release = "5.14.0"
	for i := range 4 {
		m.core(0, -1, "", i)
	}
	m.Memory.Total = 4 * gib
	return &m.Host
}

// thousands is a machine of 16 packages with 120 cores of two threads.
func thousands() *sysfs.Host {
	m := &maker{}
	m.Architecture = "ppc64le"
	m.Kernel.Release = "6.4.0"
	m.Processor.ModelName = "POWER10 (architected), altivec supported"
	for core := range 16 * 120 {
		m.core(core/120, core/120, "", 2*core, 2*core+1)
		m.private(32*kib, 48*kib, mib, 2*core, 2*core+1)
		if core%15 == 14 {
			var cpus []int
			for cpu := 2 * (core - 14); cpu <= 2*core+1; cpu++ {
				cpus = append(cpus, cpu)
			}
			m.cache(3, "unified", 60*mib, cpus...)
		}
	}
	for n := range 16 {
		m.node(n, 4096*gib, uint64(n+1)*200*gib)
		for to := range 16 {
			m.Nodes[n].Distances = append(m.Nodes[n].Distances, 10*min(1+max(n-to, to-n), 4))
		}
	}
	return &m.Host
}

// crossing has a cache that lies across two nodes, and within no other part, and
// nodes that do so, too: one across, one with the CPUs of another.
func crossing() *sysfs.Host {
	m := &maker{}
	for i := range 4 {
		m.core(0, i/2, "", i)
	}
	m.cache(3, "unified", mib, 1, 2)
	for id := range 4 {
		m.node(id, gib, gib)
	}
	m.Nodes[2].CPUs = sysfs.IDList{1, 2}
	m.Nodes[3].CPUs = sysfs.IDList{2, 3}
	m.pci(2, 0x020000, "Ethernet controller", 0x8086, 0x1572, "i40e", -1, "eth0")
	return &m.Host
}

// hostile refers to what isn't there, and calls itself what hurts a terminal or
// an XML parser.
func hostile() *sysfs.Host {
	m := &maker{}
	bad := "\x1b[2J</text><script>alert(1)</script>&\u202e\x00]]>\nline"
	m.Processor.ModelName, m.Kernel.Release, m.Architecture = bad, bad, bad
	m.core(0, 0, bad, 0, 1)
	m.cache(-3, bad, 1, 0, 7, 9000)
	m.cache(1<<30, bad, 1<<63, 0, 1)
	m.Packages[0].Nodes = sysfs.IDList{77}
	m.Nodes[0].Distances = []int{-1, 1 << 40, 3}
	m.Nodes[0].Memory, m.Nodes[0].MemoryFree = 1, 1<<64-1
	m.Nodes[0].HugePages = []sysfs.HugePages{{PageSize: 1 << 63, Total: 1 << 63, Free: 1<<64 - 1}}
	p := m.pci(99, 0x020000, bad, 1, 2, bad, 5, bad)
	p.Address, p.PhysicalFunction = bad, "nowhere"
	m.CPUs = append(m.CPUs, m.CPUs[0]) // twice
	m.Notes = []sysfs.Note{{Path: bad, Message: bad}}
	return &m.Host
}
