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
var level = [levels]struct {
	id           string
	lists, masks []string
}{
	inPackage: {"physical_package_id", []string{"package_cpus_list", "core_siblings_list"}, []string{"package_cpus", "core_siblings"}},
	inDie:     {"die_id", []string{"die_cpus_list"}, []string{"die_cpus"}},
	inCluster: {"cluster_id", []string{"cluster_cpus_list"}, []string{"cluster_cpus"}},
	inCore:    {"core_id", []string{"core_cpus_list", "thread_siblings_list"}, []string{"core_cpus", "thread_siblings"}},
}

// noCluster is what x86 says for "no such thing" (BAD_APICID cut to 16 bits);
// others say -1.
const noCluster = 0xffff

// group is a set of CPUs that a level makes.
type group struct {
	kernelID int
	// list is what the CPU that was asked says of its members; empty: nothing.
	list string
	cpus IDList
	// members are the same CPUs as indexes into Host.CPUs.
	members []int
}

// layout is the groups of every level, and which of them each CPU is in, by
// indexes; -1: none.
type layout struct {
	groups [levels][]group
	of     [levels][]int
	// numbered finds groups that only their number tells apart.
	numbered map[groupKey]int
}

// groupKey is a kernel's number within the groups around it.
type groupKey struct {
	level, id int
	outer     [levels]int
}

// topologyReader reads which CPUs belong together: cores, packages, caches.
type topologyReader struct{ *reader }

// topology groups the CPUs that are online. Who shares a package or a core
// counts rather than its number: numbers are -1 in many a VM, and repeat from
// package to package. One CPU is asked for all those in its group, and only CPUs
// of the same outer groups can be in it; so whatever the files say, each CPU is
// in one core, a core in one die, and a die in one package.
func (r topologyReader) topology(h *Host) {
	found := layout{numbered: map[groupKey]int{}}
	for l := range levels {
		found.of[l] = absent(len(h.CPUs))
	}
	for i, cpu := range h.CPUs {
		if !cpu.Online {
			continue
		}
		path := r.cpuPath(cpu.ID) + "topology/"
		if g := found.of[inCore][i]; g >= 0 {
			r.agree(path, found.groups[inCore][g].list)
			continue
		}
		for l := range levels {
			if !found.settled(i, l) {
				r.ask(h, &found, path, l, i)
			}
		}
	}
	if !found.clustered() {
		found.groups[inCluster], found.of[inCluster] = nil, absent(len(h.CPUs))
	}
	found.fill(h)
}

// settled reports whether a CPU is in a group of this level or of one within it.
func (f *layout) settled(i, level int) bool {
	for l := level; l < levels; l++ {
		if f.of[l][i] >= 0 {
			return true
		}
	}
	return false
}

// ask reads what a CPU says of one level, and makes the group that it is in.
func (r topologyReader) ask(h *Host, f *layout, path string, l, i int) {
	id := r.kernelID(path + level[l].id)
	// There is a package and a core even if they have no number; dies and
	// clusters are there only if they have one.
	if id < 0 && (l == inDie || l == inCluster) || id == noCluster && l == inCluster {
		return
	}
	text, list := r.siblings(path, l)
	if text == "" && id < 0 {
		return
	}
	key := groupKey{level: l, id: id, outer: f.outer(i, l)}
	if g, ok := f.numbered[key]; text == "" && ok {
		f.add(h, l, g, i)
		return
	}
	g := len(f.groups[l])
	f.groups[l] = append(f.groups[l], group{kernelID: id, list: text})
	if text == "" {
		f.numbered[key] = g
	}
	list = r.own(path+level[l].lists[0], list, h.CPUs[i].ID)
	if !r.worthwhile(path+level[l].lists[0], list) {
		list = IDList{h.CPUs[i].ID}
	}
	left := 0
	for _, cpu := range list {
		j, ok := h.index(cpu)
		switch {
		case ok && h.CPUs[j].Online && !f.settled(j, l) && f.outer(j, l) == key.outer:
			f.add(h, l, g, j)
		case !ok || h.CPUs[j].Online:
			left++
		}
	}
	if left > 0 {
		r.note(path+level[l].lists[0], "%.80q names CPUs that are not there or in another group already (%d of them)", text, left)
	}
}

// siblings reads who shares a level with a CPU: the text, and what it says.
func (r topologyReader) siblings(path string, l int) (string, IDList) {
	text, list, _ := r.cpuList(path, level[l].lists, level[l].masks)
	return text, list
}

// own is a list that has this CPU in it. One that hasn't makes no sense, and is
// not believed.
func (r topologyReader) own(path string, list IDList, cpu int) IDList {
	if list.Has(cpu) {
		return list
	}
	if len(list) > 0 {
		r.note(path, "CPU %d itself is not in it", cpu)
	}
	return IDList{cpu}
}

// agree notes if a CPU says something else of its core than the one that was asked.
func (r topologyReader) agree(path, list string) {
	if text, _ := r.siblings(path, inCore); text != list {
		r.note(path+level[inCore].lists[0], "%.80q is not what another CPU of the core says, which is %.80q", text, list)
	}
}

// outer is the groups around a level that a CPU is in.
func (f *layout) outer(i, level int) [levels]int {
	outer := [levels]int{-1, -1, -1, -1}
	for l := range level {
		outer[l] = f.of[l][i]
	}
	return outer
}

func (f *layout) add(h *Host, l, g, i int) {
	f.of[l][i] = g
	f.groups[l][g].cpus = append(f.groups[l][g].cpus, h.CPUs[i].ID)
	f.groups[l][g].members = append(f.groups[l][g].members, i)
}

// kernelID reads a number of the kernel's; -1 if there is none. It may be
// large: arm64 firmware numbers by offsets in a table.
func (r topologyReader) kernelID(path string) int {
	n, ok := r.number(path)
	if ok && (n < -1 || n > math.MaxInt32) {
		r.note(path, "%d is no number that the kernel gives", n)
	}
	if !ok || n < 0 || n > math.MaxInt32 {
		return -1
	}
	return int(n)
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
