package sysfs

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// cacheKey is the kind of a cache. A CPU has at most one of each.
type cacheKey struct {
	level int
	typ   string
}

// cacheFolder is one "indexN" of a CPU (cpuN/cache/indexN, Documentation/ABI/
// testing/sysfs-devices-system-cpu).
type cacheFolder struct {
	path, name string
	cpu        int
	// shared are the CPUs that have this cache, as the file says.
	shared IDList
	cache  Cache
	ok     bool
}

// caches reads the caches of one CPU of each core, and then of those CPUs whose
// caches were not among them: a core's threads share them on all but odd machines.
func (r topologyReader) caches(h *Host) {
	h.Caches = []Cache{}
	known := map[string]map[int]bool{}
	kinds := map[cacheKey]map[int]bool{}
	var first, others []int
	for _, cpu := range h.CPUs {
		switch {
		case cpu.Online && cpu.Thread == 0:
			first = append(first, cpu.ID)
		case cpu.Online:
			others = append(others, cpu.ID)
		}
	}
	r.addCaches(h, first, known, kinds)
	others = slices.DeleteFunc(others, func(id int) bool { return covered(known, id) })
	r.addCaches(h, others, known, kinds)
	slices.SortStableFunc(h.Caches, func(a, b Cache) int {
		return cmp.Or(a.Level-b.Level, cmp.Compare(a.Type, b.Type), a.CPUs[0]-b.CPUs[0])
	})
	for i := range h.Caches {
		h.Caches[i].ID = i
	}
}

// covered reports whether a CPU is in a cache of every name that there is.
func covered(known map[string]map[int]bool, id int) bool {
	for _, cpus := range known {
		if !cpus[id] {
			return false
		}
	}
	return len(known) > 0
}

// addCaches reads the caches of some CPUs. Of a cache that several share, all
// but who shares it is read once, with the first: known has, by the folder's
// name, the CPUs whose caches are known.
func (r topologyReader) addCaches(h *Host, cpus []int, known map[string]map[int]bool, kinds map[cacheKey]map[int]bool) {
	perCPU := make([][]cacheFolder, len(cpus))
	r.each(len(cpus), func(r *reader, i int) { perCPU[i] = topologyReader{r}.cacheFolders(cpus[i]) })
	var wanted []*cacheFolder
	for i := range perCPU {
		for j := range perCPU[i] {
			folder := &perCPU[i][j]
			if known[folder.name] == nil {
				known[folder.name] = map[int]bool{}
			}
			if known[folder.name][folder.cpu] {
				continue
			}
			if !r.worthwhile(folder.path+"shared_cpu_list", folder.shared) {
				folder.shared = IDList{folder.cpu}
			}
			for _, id := range folder.shared {
				known[folder.name][id] = true
			}
			wanted = append(wanted, folder)
		}
	}
	r.each(len(wanted), func(r *reader, i int) { wanted[i].cache, wanted[i].ok = topologyReader{r}.cache(wanted[i].path) })
	for _, folder := range wanted {
		if folder.ok {
			r.claim(h, folder, kinds)
		}
	}
}

// cacheFolders lists a CPU's caches, and who shares them.
func (r topologyReader) cacheFolders(cpu int) []cacheFolder {
	var folders []cacheFolder
	base := r.cpuPath(cpu) + "cache"
	for _, index := range numbered(r.names(base), "index") {
		if index > maxIndex {
			break
		}
		name := "index" + strconv.Itoa(index)
		path := base + "/" + name + "/"
		_, list, _ := r.cpuList(path, []string{"shared_cpu_list"}, []string{"shared_cpu_map"})
		folders = append(folders, cacheFolder{path: path, name: name, cpu: cpu, shared: r.own(path+"shared_cpu_list", list, cpu)})
	}
	return folders
}

// claim makes a cache of a folder, of those CPUs that are online and in no other
// cache of its kind.
func (r topologyReader) claim(h *Host, folder *cacheFolder, kinds map[cacheKey]map[int]bool) {
	cache := folder.cache
	kind := cacheKey{cache.Level, cache.Type}
	if kinds[kind] == nil {
		kinds[kind] = map[int]bool{}
	}
	left := 0
	for _, id := range folder.shared {
		if cpu := h.byID(id); cpu == nil || !cpu.Online || kinds[kind][id] {
			left++
			continue
		}
		kinds[kind][id] = true
		cache.CPUs = append(cache.CPUs, id)
	}
	if left > 0 {
		r.note(folder.path+"shared_cpu_list", "it names CPUs that are not online or in another cache of this kind already (%d of them)", left)
	}
	if len(cache.CPUs) > 0 {
		h.Caches = append(h.Caches, cache)
	}
}

// maxLevel bounds a cache's level: processors have up to 4; maxIndex
// the number of its folder, which counts the caches of a CPU from 0.
const (
	maxLevel = 9
	maxIndex = 31
)

// cache reads all of a folder but who shares the cache.
func (r topologyReader) cache(path string) (Cache, bool) {
	level, ok := r.number(path + "level")
	if !ok {
		return Cache{}, false
	}
	if level < 1 || level > maxLevel {
		r.note(path+"level", "%d is no level of a cache", level)
		return Cache{}, false
	}
	cache := Cache{KernelID: r.kernelID(path + "id"), Level: int(level)}
	switch text, _ := r.text(path + "type"); text {
	case "Data", "Instruction", "Unified":
		cache.Type = strings.ToLower(text)
	default:
		r.note(path+"type", "%.40q is no type of a cache", text)
		return Cache{}, false
	}
	cache.Size = r.size(path + "size")
	cache.LineSize = r.small(path + "coherency_line_size")
	cache.Ways = r.small(path + "ways_of_associativity")
	cache.Sets = r.small(path + "number_of_sets")
	return cache, true
}

// size reads a size as the kernel writes it: "48K"; M and G are understood too.
func (r topologyReader) size(path string) uint64 {
	text, ok := r.text(path)
	if !ok {
		return 0
	}
	digits, shift := text, 0
	for suffix, bits := range map[string]int{"K": 10, "M": 20, "G": 30} {
		if cut, found := strings.CutSuffix(text, suffix); found {
			digits, shift = cut, bits
		}
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n > 1<<50>>shift {
		r.note(path, "%.40q is no size of a cache", text)
		return 0
	}
	return n << shift
}
