package sysfstest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// cpu is one thread and where it is.
type cpu struct {
	id, thread int
	// place has the number of its core, cluster, die and package over the machine.
	place [PerPackage + 1]int
	// coreID and so on are the kernel's.
	coreID, clusterID, dieID, packageID int
}

func (m Machine) count() int {
	return max(1, m.Packages) * max(1, m.Dies) * max(1, m.Clusters) * max(1, m.Cores) * max(1, m.Threads)
}

// cpus lists the CPUs core by core.
func (m Machine) cpus() []cpu {
	threads := max(1, m.Threads)
	cores := m.count() / threads
	perDie := max(1, m.Clusters) * max(1, m.Cores)
	perPackage := perDie * max(1, m.Dies)
	var cpus []cpu
	for core := range cores {
		for thread := range threads {
			c := cpu{id: core + thread*cores, thread: thread, coreID: core % perPackage}
			if m.Adjacent {
				c.id = core*threads + thread
			}
			if m.IDs != nil {
				c.id = m.IDs[c.id]
			}
			c.place = [...]int{PerCore: core, PerThread: c.id, PerCluster: core / max(1, m.Cores), PerDie: core / perDie, PerPackage: core / perPackage}
			c.clusterID = c.place[PerCluster] % (max(1, m.Clusters) * max(1, m.Dies))
			c.dieID = c.place[PerDie] % max(1, m.Dies)
			c.packageID = c.place[PerPackage]
			if m.PackageIDs != nil {
				c.packageID = m.PackageIDs[c.packageID]
			}
			if m.CoreIDsPerDie {
				c.coreID = core % perDie
			}
			cpus = append(cpus, c)
		}
	}
	return cpus
}

// complete fills in what the description leaves out.
func (m Machine) complete() Machine {
	if m.Arch == "" {
		m.Arch = "amd64"
	}
	if m.Caches == nil {
		m.Caches = []Cache{
			{Level: 1, Type: "Data", SizeKB: 32, Ways: 8},
			{Level: 1, Type: "Instruction", SizeKB: 32, Ways: 8},
			{Level: 2, Type: "Unified", SizeKB: 1024, Ways: 16},
			{Level: 3, Type: "Unified", SizeKB: 16384, Ways: 16, Scope: PerDie},
		}
	}
	if m.Nodes == nil && m.Memory == 0 {
		m.Memory = 8 << 30
	}
	if m.Nodes == nil {
		m.Nodes = []Node{{CPUs: m.ids(), Memory: m.Memory, Free: m.Memory / 2}}
	}
	if m.Memory == 0 {
		for _, node := range m.Nodes {
			m.Memory += node.Memory
		}
	}
	if m.HugePages == nil {
		m.HugePages = m.sumPools()
	}
	return m
}

func (m Machine) ids() []int {
	var ids []int
	for _, c := range m.cpus() {
		ids = append(ids, c.id)
	}
	slices.Sort(ids)
	return ids
}

func (m Machine) sumPools() []Pool {
	sums := map[uint64]*Pool{}
	for _, node := range m.Nodes {
		for _, pool := range node.HugePages {
			sum := sums[pool.SizeKB]
			if sum == nil {
				sum = &Pool{SizeKB: pool.SizeKB}
				sums[pool.SizeKB] = sum
			}
			sum.Total += pool.Total
			sum.Free += pool.Free
			sum.Surplus += pool.Surplus
		}
	}
	var pools []Pool
	for _, size := range slices.Sorted(maps.Keys(sums)) {
		pools = append(pools, *sums[size])
	}
	return pools
}

// writer writes one machine.
type writer struct {
	*Tree
	m    Machine
	cpus []cpu
	// lists by what they say, so that each is put together once.
	online map[int]bool
	groups [PerPackage + 1]map[int][]int
	size   int
}

// sets writes the lists of all CPUs and prepares those of the groups.
func (w *writer) sets() {
	ids := w.m.ids()
	w.online = map[int]bool{}
	var online []int
	for _, id := range ids {
		if !slices.Contains(w.m.Offline, id) {
			online = append(online, id)
			w.online[id] = true
		}
	}
	for scope := range w.groups {
		w.groups[scope] = map[int][]int{}
	}
	for _, c := range w.cpus {
		for scope, place := range c.place {
			if w.online[c.id] {
				w.groups[scope][place] = append(w.groups[scope][place], c.id)
			}
		}
	}
	possible := w.m.Possible
	if possible == nil {
		possible = ids
	}
	w.size = slices.Max(possible) + 1
	const folder = "sys/devices/system/cpu/"
	w.File(folder+"possible", List(possible))
	w.File(folder+"present", List(ids))
	w.File(folder+"online", List(online))
	w.File(folder+"offline", List(w.m.Offline))
	w.File(folder+"isolated", List(w.m.Isolated))
	nohz := List(w.m.NoHZFull)
	if nohz == "" {
		nohz = " (null)"
	}
	w.File(folder+"nohz_full", nohz)
	w.File(folder+"kernel_max", "8191")
	if w.m.Performance != nil {
		w.File("sys/devices/cpu_core/cpus", List(w.m.Performance))
	}
	if w.m.Efficiency != nil {
		w.File("sys/devices/cpu_atom/cpus", List(w.m.Efficiency))
	}
}

// cpu writes the folder of a CPU. One that is offline has little in it.
func (w *writer) cpu(c cpu) {
	folder := fmt.Sprintf("sys/devices/system/cpu/cpu%d/", c.id)
	w.Folder(folder)
	if c.id != 0 || !w.online[0] {
		w.File(folder+"online", map[bool]string{true: "1", false: "0"}[w.online[c.id]])
	}
	if !w.m.NoNodes {
		for _, node := range w.m.Nodes {
			if slices.Contains(node.CPUs, c.id) {
				name := fmt.Sprintf("node%d", node.ID)
				w.Link(folder+name, "sys/devices/system/node/"+name)
				w.Link(fmt.Sprintf("sys/devices/system/node/%s/cpu%d", name, c.id), folder)
			}
		}
	}
	if !w.online[c.id] {
		return
	}
	w.topology(folder+"topology/", c)
	w.caches(folder+"cache/", c)
	if capacity, ok := w.m.Capacity[c.id]; ok {
		w.Printf(folder+"cpu_capacity", "%d", capacity)
	}
	if hz, ok := w.m.MaxFrequency[c.id]; ok {
		policy := fmt.Sprintf("sys/devices/system/cpu/cpufreq/policy%d", c.id)
		w.Printf(policy+"/cpuinfo_max_freq", "%d", hz/1000)
		w.Link(folder+"cpufreq", policy)
	}
}

func (w *writer) topology(folder string, c cpu) {
	w.Printf(folder+"core_id", "%d", c.coreID)
	w.Printf(folder+"physical_package_id", "%d", c.packageID)
	w.shared(folder, []string{"core_cpus", "thread_siblings"}, w.groups[PerCore][c.place[PerCore]])
	w.shared(folder, []string{"package_cpus", "core_siblings"}, w.groups[PerPackage][c.place[PerPackage]])
	if w.m.Dies > 0 {
		w.Printf(folder+"die_id", "%d", c.dieID)
		w.shared(folder, []string{"die_cpus"}, w.groups[PerDie][c.place[PerDie]])
	}
	if w.m.Clusters > 0 {
		w.Printf(folder+"cluster_id", "%d", c.clusterID)
		w.shared(folder, []string{"cluster_cpus"}, w.groups[PerCluster][c.place[PerCluster]])
	}
}

// shared writes a mask and a list of CPUs under each of the names.
func (w *writer) shared(folder string, names []string, ids []int) {
	for _, name := range names {
		w.File(folder+name, Mask(ids, w.size))
		w.File(folder+name+"_list", List(ids))
	}
}

func (w *writer) caches(folder string, c cpu) {
	index := 0
	for _, cache := range w.m.Caches {
		if cache.CPUs != nil && !slices.Contains(cache.CPUs, c.id) {
			continue
		}
		path := fmt.Sprintf("%sindex%d/", folder, index)
		index++
		w.Printf(path+"level", "%d", cache.Level)
		w.File(path+"type", cache.Type)
		w.Printf(path+"id", "%d", c.place[cache.Scope])
		if cache.SizeKB > 0 {
			w.Printf(path+"size", "%dK", cache.SizeKB)
		}
		if cache.Ways > 0 {
			w.File(path+"coherency_line_size", "64")
			w.Printf(path+"ways_of_associativity", "%d", cache.Ways)
			w.Printf(path+"number_of_sets", "%d", cache.SizeKB<<10/64/cache.Ways)
			w.File(path+"physical_line_partition", "1")
		}
		ids := w.groups[cache.Scope][c.place[cache.Scope]]
		if cache.CPUs != nil {
			ids = slices.DeleteFunc(slices.Clone(ids), func(id int) bool { return !slices.Contains(cache.CPUs, id) })
		}
		w.File(path+"shared_cpu_map", Mask(ids, w.size))
		w.File(path+"shared_cpu_list", List(ids))
	}
}

func (w *writer) nodes() {
	if w.m.NoNodes {
		return
	}
	const folder = "sys/devices/system/node/"
	var all, withCPU, withMemory []int
	for i, node := range w.m.Nodes {
		all = append(all, node.ID)
		if len(node.CPUs) > 0 {
			withCPU = append(withCPU, node.ID)
		}
		if node.Memory > 0 {
			withMemory = append(withMemory, node.ID)
		}
		w.node(fmt.Sprintf("%snode%d/", folder, node.ID), i)
	}
	possible := w.m.PossibleNodes
	if possible == nil {
		possible = all
	}
	w.File(folder+"possible", List(possible))
	w.File(folder+"online", List(all))
	w.File(folder+"has_cpu", List(withCPU))
	w.File(folder+"has_memory", List(withMemory))
	w.File(folder+"has_normal_memory", List(withMemory))
}

func (w *writer) node(folder string, i int) {
	node := w.m.Nodes[i]
	var online []int
	for _, id := range node.CPUs {
		if w.online[id] {
			online = append(online, id)
		}
	}
	w.File(folder+"cpumap", Mask(online, w.size))
	w.File(folder+"cpulist", List(online))
	distances := node.Distances
	for other := range w.m.Nodes {
		if node.Distances == nil {
			distances = append(distances, map[bool]int{true: 10, false: 20}[other == i])
		}
	}
	w.File(folder+"distance", strings.Trim(fmt.Sprint(distances), "[]"))
	w.Printf(folder+"meminfo", "Node %d MemTotal:       %8d kB\nNode %d MemFree:        %8d kB\nNode %d MemUsed:        %8d kB",
		node.ID, node.Memory>>10, node.ID, node.Free>>10, node.ID, (node.Memory-node.Free)>>10)
	for _, pool := range node.HugePages {
		path := fmt.Sprintf("%shugepages/hugepages-%dkB/", folder, pool.SizeKB)
		w.Printf(path+"nr_hugepages", "%d", pool.Total)
		w.Printf(path+"free_hugepages", "%d", pool.Free)
		w.Printf(path+"surplus_hugepages", "%d", pool.Surplus)
	}
}

func (w *writer) memory() {
	const mm = "sys/kernel/mm/"
	for _, pool := range w.m.HugePages {
		path := fmt.Sprintf(mm+"hugepages/hugepages-%dkB/", pool.SizeKB)
		w.Printf(path+"nr_hugepages", "%d", pool.Total)
		w.Printf(path+"free_hugepages", "%d", pool.Free)
		w.Printf(path+"resv_hugepages", "%d", pool.Reserved)
		w.Printf(path+"surplus_hugepages", "%d", pool.Surplus)
		w.File(path+"nr_overcommit_hugepages", "0")
	}
	w.File(mm+"transparent_hugepage/enabled", "always [madvise] never")
	w.File(mm+"transparent_hugepage/shmem_enabled", "always within_size advise [never] deny force")
	w.File(mm+"ksm/run", "0")
	w.File(mm+"ksm/pages_shared", "0")
	w.File(mm+"ksm/pages_sharing", "0")
	w.File(mm+"ksm/merge_across_nodes", "1")
}
