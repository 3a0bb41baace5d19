package sysfs

import (
	"math"
	"slices"
)

// The levels that CPUs are grouped by, from the outside in.
const (
	inPackage = iota
	inDie
	inCluster
	inCore
	levels
)

// level names the files of cpuN/topology that tell of a level: its number, and
// which CPUs share it under the name of today's kernels and of those before 5.5
// (Documentation/ABI/stable/sysfs-devices-system-cpu).
var level = [levels]struct{ id, list, oldList string }{
	inPackage: {"physical_package_id", "package_cpus_list", "core_siblings_list"},
	inDie:     {"die_id", "die_cpus_list", ""},
	inCluster: {"cluster_id", "cluster_cpus_list", ""},
	inCore:    {"core_id", "core_cpus_list", "thread_siblings_list"},
}

// noCluster is what x86 says for "no such thing" (BAD_APICID cut to 16 bits);
// others say -1.
const noCluster = 0xffff

// place is where a CPU says that it is.
type place struct {
	// id is the kernel's number at each level; -1: not told.
	id [levels]int
	// list is the text of who shares it; empty: not told.
	list [levels]string
}

// group is a set of CPUs that a level makes.
type group struct {
	kernelID int
	list     string
	cpus     IDList
	// members are the same CPUs as indexes into Host.CPUs.
	members []int
}

// groupKey tells groups of one level apart. Who shares it counts rather than
// the number: numbers are -1 in many a VM, and repeat from package to package.
// The group around it belongs to the key, so that whatever the files say, a core
// is in one die and a die in one package.
type groupKey struct {
	outer int
	list  string
	id    int
}

// layout is the groups of every level, and which of them each CPU is in, by
// indexes; -1: none.
type layout struct {
	groups [levels][]group
	of     [levels][]int
}

// topology groups the CPUs that are online by what each says of itself, so that
// each is in one core, and one only, even where the lists contradict each other.
func (r *reader) topology(h *Host) {
	places := r.places(h)
	var found layout
	outer := make([]int, len(h.CPUs))
	for l := range levels {
		found.groups[l], found.of[l] = divide(l, h, places, outer)
		for i, g := range found.of[l] {
			if g >= 0 {
				// No number twice: a die's groups and a package's differ.
				outer[i] = (l+1)*MaxID + g
			}
		}
		r.compare(l, h, found.groups[l])
	}
	if !found.clustered() {
		found.groups[inCluster], found.of[inCluster] = nil, absent(len(h.CPUs))
	}
	found.fill(h)
}

// places reads where the CPUs that are online say they are.
func (r *reader) places(h *Host) []place {
	places := make([]place, len(h.CPUs))
	for i, cpu := range h.CPUs {
		if cpu.Online {
			places[i] = r.place(r.cpuPath(cpu.ID) + "topology/")
			continue
		}
		places[i] = place{id: [levels]int{-1, -1, -1, -1}}
	}
	return places
}

func (r *reader) place(path string) place {
	var p place
	for l, names := range level {
		p.id[l] = r.kernelID(path + names.id)
		text, ok := r.shared(path + names.list)
		if !ok && names.oldList != "" {
			text, _ = r.shared(path + names.oldList)
		}
		p.list[l] = text
	}
	// There always is a package and a core; dies and clusters are there only if
	// they have a number.
	if p.id[inDie] < 0 {
		p.list[inDie] = ""
	}
	if p.id[inCluster] < 0 || p.id[inCluster] == noCluster {
		p.id[inCluster], p.list[inCluster] = -1, ""
	}
	return p
}

// kernelID reads a number of the kernel's; -1 if there is none. It may be
// large: arm64 firmware numbers by offsets in a table.
func (r *reader) kernelID(path string) int {
	n, ok := r.number(path)
	if ok && (n < -1 || n > math.MaxInt32) {
		r.note(path, "%d is no number of a package, die, cluster or core", n)
	}
	if !ok || n < 0 || n > math.MaxInt32 {
		return -1
	}
	return int(n)
}

// shared reads a list that is to make sense, as text: the same text for the same CPUs.
func (r *reader) shared(path string) (string, bool) {
	text, ok := r.text(path)
	if !ok {
		return "", false
	}
	list, ok := r.parseList(path, text)
	return text, ok && len(list) > 0
}

// divide makes the groups of a level, in the order of their first CPUs.
func divide(l int, h *Host, places []place, outer []int) (groups []group, of []int) {
	of = absent(len(h.CPUs))
	found := map[groupKey]int{}
	for i, p := range places {
		if p.id[l] < 0 && p.list[l] == "" {
			continue
		}
		key := groupKey{outer: outer[i], list: p.list[l], id: -1}
		if key.list == "" {
			key.id = p.id[l]
		}
		g, ok := found[key]
		if !ok {
			g = len(groups)
			found[key] = g
			groups = append(groups, group{kernelID: p.id[l], list: p.list[l]})
		}
		groups[g].cpus = append(groups[g].cpus, h.CPUs[i].ID)
		groups[g].members = append(groups[g].members, i)
		of[i] = g
	}
	return groups, of
}

// compare notes where CPUs disagree on who shares something.
func (r *reader) compare(l int, h *Host, groups []group) {
	for _, g := range groups {
		list, ok := r.lists[g.list]
		if g.list == "" || !ok || slices.Equal(list, g.cpus) {
			continue
		}
		r.note(r.cpuPath(g.cpus[0])+"topology/"+level[l].list,
			"%.80q is not what the CPUs in it say of themselves; only %.80q are taken to be together", g.list, g.cpus.String())
	}
}

// clustered reports whether any cluster has more than one core: if not, clusters
// are but another word for cores, as on most x86.
func (f *layout) clustered() bool {
	for _, cluster := range f.groups[inCluster] {
		core := f.of[inCore][cluster.members[0]]
		for _, i := range cluster.members {
			if f.of[inCore][i] != core {
				return true
			}
		}
	}
	return false
}

// fill makes packages, dies, clusters and cores of the groups.
func (f *layout) fill(h *Host) {
	ids := packageIDs(f.groups[inPackage])
	for i := range h.CPUs {
		cpu := &h.CPUs[i]
		if g := f.of[inPackage][i]; g >= 0 {
			cpu.Package = ids[g]
		}
		cpu.Die, cpu.Cluster, cpu.Core = f.of[inDie][i], f.of[inCluster][i], f.of[inCore][i]
	}
	h.Packages = make([]Package, 0, len(ids))
	for g, found := range f.groups[inPackage] {
		h.Packages = append(h.Packages, Package{ID: ids[g], CPUs: found.cpus, Nodes: nodesOf(h, found)})
	}
	slices.SortFunc(h.Packages, func(a, b Package) int { return a.ID - b.ID })
	h.Dies = make([]Die, 0, len(f.groups[inDie]))
	for g, found := range f.groups[inDie] {
		cpu := h.CPUs[found.members[0]]
		h.Dies = append(h.Dies, Die{ID: g, KernelID: found.kernelID, Package: cpu.Package, CPUs: found.cpus})
	}
	h.Clusters = make([]Cluster, 0, len(f.groups[inCluster]))
	for g, found := range f.groups[inCluster] {
		cpu := h.CPUs[found.members[0]]
		h.Clusters = append(h.Clusters, Cluster{ID: g, KernelID: found.kernelID, Package: cpu.Package, Die: cpu.Die, CPUs: found.cpus})
	}
	h.Cores = make([]Core, 0, len(f.groups[inCore]))
	for g, found := range f.groups[inCore] {
		cpu := h.CPUs[found.members[0]]
		h.Cores = append(h.Cores, Core{ID: g, KernelID: found.kernelID, Package: cpu.Package, Die: cpu.Die,
			Cluster: cpu.Cluster, Kind: cpu.Kind, CPUs: found.cpus})
		for thread, i := range found.members {
			h.CPUs[i].Thread = thread
		}
	}
}

// packageIDs are the kernel's numbers. Where it gives none (-1, in many an arm64
// or POWER machine), or the same twice (s390x, where they count in a book), the
// package gets the lowest that is free.
func packageIDs(packages []group) []int {
	ids := absent(len(packages))
	taken := map[int]bool{}
	for g, p := range packages {
		if p.kernelID >= 0 && !taken[p.kernelID] {
			ids[g] = p.kernelID
			taken[p.kernelID] = true
		}
	}
	next := 0
	for g := range ids {
		if ids[g] >= 0 {
			continue
		}
		for taken[next] {
			next++
		}
		ids[g] = next
		taken[next] = true
	}
	return ids
}

// nodesOf returns the nodes that a group's CPUs are in.
func nodesOf(h *Host, g group) IDList {
	nodes := IDList{}
	for _, i := range g.members {
		if node := h.CPUs[i].Node; node >= 0 && (len(nodes) == 0 || nodes[len(nodes)-1] != node) {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

func absent(n int) []int { return slices.Repeat([]int{-1}, n) }
