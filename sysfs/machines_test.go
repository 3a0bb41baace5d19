package sysfs

import (
	"strings"
	"testing"

	"github.com/vmlet/vmlet/sysfs/sysfstest"
)

// machine is an odd machine: what sysfstest writes, and what is changed of it.
type machine struct {
	name   string
	made   sysfstest.Machine
	change func(*sysfstest.Tree)
	// odd: lscpu shows it in another way, or not at all; here is why.
	odd string
}

func upTo(n int) (ids []int) {
	for id := range n {
		ids = append(ids, id)
	}
	return ids
}

const cpuDir = "sys/devices/system/cpu/"

func machines() []machine {
	amd64 := sysfstest.Machine{Packages: 2, Dies: 1, Cores: 2, Threads: 2}.SplitNodes(2, 4<<30)
	amd64.Swap, amd64.MaxFrequency = 1<<30, map[int]uint64{0: 3_500_000_000}
	amd64.Nodes[0].HugePages = []sysfstest.Pool{{SizeKB: 2048, Total: 512, Free: 500, Surplus: 2}, {SizeKB: 1 << 20, Total: 2, Free: 1}}
	amd64.HugePages = []sysfstest.Pool{{SizeKB: 1 << 20, Total: 2, Free: 1}, {SizeKB: 2048, Total: 512, Free: 500, Reserved: 7, Surplus: 2}}

	offline := amd64
	offline.Offline, offline.Isolated, offline.NoHZFull = []int{3, 7}, []int{1, 2}, []int{2}
	offline.Possible = upTo(12)

	first := sysfstest.Machine{Dies: 1, Cores: 2, Threads: 2, Offline: []int{0}}

	sparse := sysfstest.Machine{Packages: 2, Dies: 1, Cores: 2, PossibleNodes: upTo(16)}.SplitNodes(2, 2<<30)
	sparse.Nodes[1].ID = 8

	bare := sysfstest.Machine{Dies: 1, Cores: 4}.SplitNodes(2, 2<<30)
	bare.Nodes[1].Memory, bare.Nodes[1].Free = 0, 0
	bare.Nodes = append(bare.Nodes, sysfstest.Node{ID: 2, Memory: 16 << 30, Free: 16 << 30, Distances: []int{20, 30, 10}})
	bare.Nodes[0].Distances, bare.Nodes[1].Distances = []int{10, 12, 20}, []int{12, 10, 30}

	return []machine{
		{name: "two-packages", made: amd64},
		{name: "offline", made: offline},
		{name: "cpu0-offline", made: first},
		{name: "sparse-nodes", made: sparse},
		{name: "bare-nodes", made: bare},
		{name: "hybrid", made: hybrid(), odd: "lscpu leaves out columns of CPUs whose caches differ from the first's"},
		{name: "no-nodes", made: sysfstest.Machine{Dies: 1, Cores: 2, Memory: 2 << 30, NoNodes: true}},
		{name: "arm64", made: arm64()},
		{name: "arm64-vm", made: sysfstest.Machine{Arch: "arm64", Cores: 4, PackageIDs: []int{-1}, Caches: []sysfstest.Cache{}}},
		{name: "s390x", made: s390x(), change: func(t *sysfstest.Tree) {
			t.File("sys/firmware/uv/prot_virt_host", "1")
			t.File("sys/module/kvm/parameters/nested", "1")
			t.File("proc/sysinfo", "Manufacturer:         IBM\nType:                 8561\nVM00 Name:            guest\n")
		}, odd: "the sockets' ids repeat from book to book; lscpu reads books"},
		{name: "power", made: power()},
		{name: "dies", made: sysfstest.Machine{Packages: 2, Dies: 2, Cores: 2, CoreIDsPerDie: true}.SplitNodes(4, 1<<30)},
		{name: "cgroup", made: func() sysfstest.Machine {
			m := amd64
			m.Allowed, m.AllowedNodes = []int{1, 2, 40}, []int{1, 5}
			return m
		}()},
		{name: "captured", made: sysfstest.Machine{Dies: 1, Cores: 4}, change: captured},
		{name: "no-proc", made: sysfstest.Machine{Packages: 2, Cores: 2, Threads: 2}.SplitNodes(2, 1<<30), change: func(t *sysfstest.Tree) {
			oldKernel(t)
			t.Remove("proc")
		}, odd: "lscpu needs /proc"},
		{name: "old-kernel", made: sysfstest.Machine{Cores: 2, Threads: 2}, change: oldKernel},
		{name: "folders", made: sysfstest.Machine{Dies: 1, Cores: 3, Offline: []int{1}}, change: func(t *sysfstest.Tree) {
			for _, name := range []string{"possible", "present", "online", "offline"} {
				t.Remove(cpuDir + name)
			}
			t.Raw(cpuDir+"cpu2/online", "") // as it is captured where it can't be read
			t.Folder(cpuDir + "cpu01")
			t.Folder(cpuDir + "cpufreq")
			t.Remove("sys/devices/system/node/online")
		}, odd: "lscpu needs the lists; the folders tell as much"},
		{name: "masks", made: sysfstest.Machine{Packages: 2, Dies: 1, Cores: 2, Threads: 2}.SplitNodes(2, 1<<30), change: func(t *sysfstest.Tree) {
			for _, path := range files(t.TB(), t) {
				if strings.HasSuffix(path, "_list") || strings.HasSuffix(path, "/cpulist") {
					t.Remove(strings.TrimPrefix(path, t.Root))
				}
			}
		}},
		{name: "no-lists", made: sysfstest.Machine{Packages: 2, Dies: 2, Cores: 2, Threads: 2}, change: func(t *sysfstest.Tree) {
			for _, path := range files(t.TB(), t) {
				if strings.Contains(path, "/topology/") && (strings.HasSuffix(path, "_list") || strings.HasSuffix(path, "_cpus") || strings.HasSuffix(path, "_siblings")) {
					t.Remove(strings.TrimPrefix(path, t.Root))
				}
			}
		}, odd: "lscpu needs the masks; the numbers tell as much"},
		{name: "node-memory-untold", made: sysfstest.Machine{Dies: 1, Cores: 2, Caches: []sysfstest.Cache{}}.SplitNodes(2, 1<<30), change: func(t *sysfstest.Tree) {
			t.Remove("sys/devices/system/node/node0/meminfo")
			t.Raw("sys/devices/system/node/node1/meminfo", "")
		}},
		{name: "senseless", made: amd64, change: senseless, odd: "it is senseless"},
		{name: "nothing", made: sysfstest.Machine{}, change: func(t *sysfstest.Tree) {
			t.Remove("sys/devices")
			t.Remove("sys/kernel")
			t.Remove("proc/self")
			t.Remove("proc/cpuinfo")
		}, odd: "there is nothing"},
	}
}

// hybrid has 4 performance cores, and 4 efficiency cores that share an L2.
func hybrid() sysfstest.Machine {
	return sysfstest.Machine{
		Dies: 1, Clusters: 2, Cores: 4, Performance: upTo(4), Efficiency: []int{4, 5, 6, 7},
		Capacity:     map[int]int{0: 1024, 1: 1024, 2: 1024, 3: 1024, 4: 640, 5: 640, 6: 640, 7: 640},
		MaxFrequency: map[int]uint64{0: 5_200_000_000, 4: 3_900_000_000},
		Caches: []sysfstest.Cache{
			{Level: 1, Type: "Data", SizeKB: 48, Ways: 12, CPUs: upTo(4)},
			{Level: 1, Type: "Data", SizeKB: 32, Ways: 8, CPUs: []int{4, 5, 6, 7}},
			{Level: 1, Type: "Instruction", SizeKB: 32, Ways: 8},
			{Level: 2, Type: "Unified", SizeKB: 1280, Ways: 10, CPUs: upTo(4)},
			{Level: 2, Type: "Unified", SizeKB: 2048, Ways: 16, CPUs: []int{4, 5, 6, 7}, Scope: sysfstest.PerCluster},
			{Level: 3, Type: "Unified", SizeKB: 12288, Ways: 12, Scope: sysfstest.PerPackage},
		},
	}
}

// arm64 is big and little: the firmware numbers packages and clusters by offsets.
func arm64() sysfstest.Machine {
	return sysfstest.Machine{
		Arch: "arm64", Clusters: 2, Cores: 2, PackageIDs: []int{5418},
		Capacity: map[int]int{0: 485, 1: 485, 2: 1024, 3: 1024},
		Caches: []sysfstest.Cache{
			{Level: 1, Type: "Data"}, {Level: 1, Type: "Instruction"},
			{Level: 2, Type: "Unified", SizeKB: 512, Ways: 8, Scope: sysfstest.PerCluster},
		},
	}
}

// s390x has two books with a socket 0 each.
func s390x() sysfstest.Machine {
	return sysfstest.Machine{Arch: "s390x", Packages: 2, PackageIDs: []int{0, 0}, Cores: 2, Threads: 2, Adjacent: true}
}

// power has eight threads a core, of which two are online, in nodes 0 and 8.
func power() sysfstest.Machine {
	m := sysfstest.Machine{Arch: "ppc64le", Packages: 2, PackageIDs: []int{-1, -1}, Cores: 2, Threads: 8, Adjacent: true,
		Caches: []sysfstest.Cache{{Level: 1, Type: "Data", SizeKB: 32}, {Level: 3, Type: "Unified", SizeKB: 10240}}}
	for id := range 32 {
		if id%8 > 1 {
			m.Offline = append(m.Offline, id)
		}
	}
	m = m.SplitNodes(2, 32<<30)
	m.Nodes[1].ID = 8
	return m
}

// captured has no process of its own; the cgroup's files tell what is allowed.
// (A CPU has no sizes of its caches either: a tree may be captured in part.)
func captured(t *sysfstest.Tree) {
	t.Remove("proc/4711/status")
	t.File("sys/fs/cgroup/system.slice/vmlet.service/cpuset.cpus.effective", "1-2")
	t.File("sys/fs/cgroup/cpuset.mems.effective", "0")
	t.File("sys/fs/cgroup/misc.capacity", "sev 50\nsev_es 9\n")
	t.File("sys/module/kvm_amd/parameters/nested", "1")
	t.File("sys/module/kvm_amd/parameters/sev", "Y")
	t.File("sys/module/kvm/parameters/halt_poll_ns", "200000")
	t.Folder("sys/module/mshv_root")
	t.File("proc/sys/kernel/sched_rt_runtime_us", "-1")
	t.File("sys/devices/system/cpu/cpu0/tsc_freq_khz", "2400000")
}

// oldKernel is from before 5.5: it has other names for the lists.
func oldKernel(t *sysfstest.Tree) {
	for _, cpu := range []string{"cpu0", "cpu1", "cpu2", "cpu3"} {
		for _, name := range []string{"core_cpus", "package_cpus"} {
			t.Remove(cpuDir + cpu + "/topology/" + name)
			t.Remove(cpuDir + cpu + "/topology/" + name + "_list")
		}
	}
	t.Remove("sys/devices/system/node/possible")
	t.Remove("sys/devices/system/cpu/nohz_full")
}

// senseless has everything wrong that a file can have wrong.
func senseless(t *sysfstest.Tree) {
	huge := "9223372036854775808"
	t.File(cpuDir+"possible", "0-"+huge)
	t.File(cpuDir+"online", "0-8")
	t.File(cpuDir+"isolated", "7-3")
	t.File(cpuDir+"cpu0/cpu_capacity", "-5")
	t.File(cpuDir+"cpu1/cpu_capacity", huge)
	t.Remove(cpuDir + "cpu0/cpufreq")
	t.File(cpuDir+"cpu0/cpufreq/cpuinfo_max_freq", "9223372036854775807")
	t.File(cpuDir+"cpu0/topology/core_cpus_list", "0-1,60000")
	t.File(cpuDir+"cpu2/topology/core_cpus_list", "3")
	t.File(cpuDir+"cpu2/topology/physical_package_id", "-2")
	t.File(cpuDir+"cpu3/topology/core_id", huge)
	t.File(cpuDir+"cpu3/topology/die_id", "x")
	t.File(cpuDir+"cpu0/cache/index0/size", "-1K")
	t.File(cpuDir+"cpu0/cache/index1/type", "Chocolate")
	t.File(cpuDir+"cpu0/cache/index2/level", huge)
	t.File(cpuDir+"cpu0/cache/index3/shared_cpu_list", "0-60000")
	t.File(cpuDir+"cpu1/cache/index0/shared_cpu_list", "2")
	t.File(cpuDir+"cpu1/cache/index0/number_of_sets", huge)
	t.File("sys/devices/system/node/online", "0-1,3")
	t.File("sys/devices/system/node/node0/distance", "10 x")
	t.File("sys/devices/system/node/node1/cpulist", "0-7,999")
	t.File("sys/devices/system/node/node1/meminfo", "Node 1 MemTotal: 18446744073709551615 kB\nNode 1\n")
	t.File("sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages", "-1")
	t.Folder("sys/kernel/mm/hugepages/hugepages-0kB")
	t.File("sys/kernel/mm/transparent_hugepage/enabled", "[always")
	t.File("sys/kernel/mm/ksm/run", "7")
	t.File("proc/meminfo", "MemTotal: many kB")
	t.File("proc/4711/status", "Cpus_allowed_list:\t0-x\nMems_allowed_list:\t0,,1")
	t.Raw("proc/cpuinfo", "vendor_id : \x00\xff\ncpu family : -6\nmodel : 0x\n")
	t.File("sys/fs/cgroup/misc.capacity", "sev\nsev_es -1")
	t.RawLink("sys/devices/cpu_core", "/sys/devices/cpu")
	t.Remove("sys/devices/system/clocksource/clocksource0/available_clocksource")
	t.Folder("sys/devices/system/clocksource/clocksource0/available_clocksource")
}

func TestMachines(t *testing.T) {
	for _, m := range machines() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			tree := m.made.Write(t)
			if m.change != nil {
				m.change(tree)
			}
			h := Read(rootsOf(tree))
			checkHost(t, h)
			golden(t, "machine-"+m.name, tree, h)
		})
	}
}

func large() machine { return machine{name: "large", made: sysfstest.Large()} }
