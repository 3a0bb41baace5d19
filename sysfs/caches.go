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

// claims are the caches that are known so far, by kind or place in the folder,
// and the CPUs in them.
type claims struct {
	// byIndex says, of each "indexN", which CPUs' caches of that name are known
	// from another CPU, whose files needn't be read again.
	byIndex map[string]map[int]bool
	byKind  map[cacheKey]map[int]bool
}

// caches reads each CPU's caches (cpuN/cache/indexN, Documentation/ABI/testing/
// sysfs-devices-system-cpu). One that is shared is read with the first CPU in it.
func (r *reader) caches(h *Host) {
	h.Caches = []Cache{}
	known := claims{byIndex: map[string]map[int]bool{}, byKind: map[cacheKey]map[int]bool{}}
	for _, cpu := range h.CPUs {
		if !cpu.Online {
			continue
		}
		folder := r.cpuPath(cpu.ID) + "cache"
		for _, name := range r.names(folder) {
			if !strings.HasPrefix(name, "index") || known.byIndex[name][cpu.ID] {
				continue
			}
			cache, ok := r.cache(folder+"/"+name+"/", cpu.ID)
			if !ok {
				continue
			}
			if cache.CPUs = r.claim(folder+"/"+name, h, &known, name, cache); len(cache.CPUs) > 0 {
				h.Caches = append(h.Caches, cache)
			}
		}
	}
	slices.SortStableFunc(h.Caches, func(a, b Cache) int {
		return cmp.Or(a.Level-b.Level, cmp.Compare(a.Type, b.Type), a.CPUs[0]-b.CPUs[0])
	})
	for i := range h.Caches {
		h.Caches[i].ID = i
	}
}

// maxLevel bounds a cache's level; processors have up to 4.
const maxLevel = 9

// cache reads one folder. The CPUs are as the file says.
func (r *reader) cache(path string, cpu int) (Cache, bool) {
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
	cache.CPUs, ok = r.list(path + "shared_cpu_list")
	if ok && !cache.CPUs.Has(cpu) {
		r.note(path+"shared_cpu_list", "CPU %d itself is not in it; the cache is taken to be its own", cpu)
	}
	if !cache.CPUs.Has(cpu) {
		cache.CPUs = IDList{cpu}
	}
	return cache, true
}

// claim returns those of the cache's CPUs that are online and in no other cache
// of its kind, and remembers them.
func (r *reader) claim(path string, h *Host, known *claims, name string, cache Cache) IDList {
	kind := cacheKey{cache.Level, cache.Type}
	if known.byKind[kind] == nil {
		known.byKind[kind] = map[int]bool{}
	}
	if known.byIndex[name] == nil {
		known.byIndex[name] = map[int]bool{}
	}
	mine := IDList{}
	for _, id := range cache.CPUs {
		cpu := h.byID(id)
		if cpu == nil || !cpu.Online || known.byKind[kind][id] {
			r.note(path+"/shared_cpu_list", "CPU %d is not online or already in another cache of this kind; it is left out", id)
			continue
		}
		known.byKind[kind][id] = true
		known.byIndex[name][id] = true
		mine = append(mine, id)
	}
	return mine
}

// small reads a number that can't be large; 0 if it is not told or makes no sense.
func (r *reader) small(path string) int {
	n := r.count(path)
	if n > 1<<31-1 {
		r.note(path, "%d is too much to make sense", n)
		return 0
	}
	return int(n)
}

// size reads a size as the kernel writes it: "48K"; M and G are understood too.
func (r *reader) size(path string) uint64 {
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
