package sysfs

import (
	"slices"
	"strconv"
	"strings"

	"github.com/vmlet/vmlet/sysfs/notation"
)

// cpuReader reads which CPUs there are, and what for.
type cpuReader struct{ *reader }

// cpus lists the CPUs that are there, online or not, and what their own files
// say. Where "present" is missing, the folders tell.
func (r cpuReader) cpus(h *Host) {
	const base = "devices/system/cpu/"
	sets := &h.CPUSets
	sets.Possible, _ = r.list(r.sys(base + "possible"))
	sets.Isolated, _ = r.list(r.sys(base + "isolated"))
	sets.NoHZFull, _ = r.list(r.sys(base + "nohz_full"))
	online, onlineTold := r.list(r.sys(base + "online"))
	present, presentTold := r.list(r.sys(base + "present"))
	if !presentTold || len(present) == 0 {
		present = numbered(r.names(r.sys(base)), "cpu")
	}
	present = r.union(r.sys(base+"present"), present, online)
	// A root that could not be opened is noted already.
	if _, _, err := r.locate(r.sys(base)); err == nil && len(present) == 0 {
		r.note(r.sys("devices/system/cpu"), "it tells of no CPU, and every machine has one")
	}

	h.CPUs = make([]CPU, 0, len(present))
	sets.Present, sets.Online, sets.Offline = present, IDList{}, IDList{}
	for _, id := range present {
		cpu := CPU{ID: id, Core: -1, Cluster: -1, Die: -1, Package: -1, Node: -1}
		cpu.Online = online.Has(id)
		if !onlineTold {
			cpu.Online = r.online(id)
		}
		cpu.Isolated = sets.Isolated.Has(id)
		if cpu.Online {
			sets.Online = append(sets.Online, id)
		} else {
			sets.Offline = append(sets.Offline, id)
		}
		h.CPUs = append(h.CPUs, cpu)
	}
	r.speeds(h)
	r.kinds(h)
}

// union is what is present and what is online, which is the same unless the
// files make no sense.
func (r cpuReader) union(path string, present, online IDList) IDList {
	all := append(append(IDList{}, present...), online...)
	slices.Sort(all)
	if all = slices.Compact(all); len(all) != len(present) {
		r.note(path, "CPUs are online that are not present: they are taken to be")
	}
	return all
}

// online is what a CPU says of itself. One that can't be taken offline has no
// such file; a file that says nothing comes of a machine that would not let it be
// read when it was captured.
func (r cpuReader) online(id int) bool {
	path := r.cpuPath(id) + "online"
	switch text, _ := r.text(path); text {
	case "0":
		return false
	case "", "1":
	default:
		r.note(path, "%.40q is neither 0 nor 1; the CPU is taken to be online", text)
	}
	return true
}

// cpuPath returns a CPU's folder, with a slash behind it.
func (r *reader) cpuPath(id int) string {
	return r.sys("devices/system/cpu/cpu" + strconv.Itoa(id) + "/")
}

// speeds reads what tells fast CPUs from slow ones.
func (r cpuReader) speeds(h *Host) {
	r.each(len(h.CPUs), func(r *reader, i int) {
		cpu := &h.CPUs[i]
		if !cpu.Online {
			return
		}
		path := r.cpuPath(cpu.ID)
		// The scheduler's scale ends at 1024 (SCHED_CAPACITY_SCALE).
		cpu.Capacity = r.small(path + "cpu_capacity")
		// In kHz (Documentation/admin-guide/pm/cpufreq.rst).
		cpu.MaxFrequency = r.scaled(path+"cpufreq/cpuinfo_max_freq", 1000)
	})
}

// scaled reads a number and multiplies it; 0 if it is missing or makes no sense.
func (r *reader) scaled(path string, unit uint64) uint64 {
	n := r.count(path)
	if n > 1<<63/unit {
		r.note(path, "%d is too much to make sense", n)
		return 0
	}
	return n * unit
}

// kinds of a hybrid x86 processor show by its performance counters: one set
// of them for each kind of core.
func (r cpuReader) kinds(h *Host) {
	kinds := []struct{ pmu, kind string }{
		{"cpu_core", "performance"},
		{"cpu_atom", "efficiency"},
		{"cpu_lowpower", "efficiency"},
	}
	for _, k := range kinds {
		list, _ := r.list(r.sys("devices/" + k.pmu + "/cpus"))
		for i := range h.CPUs {
			if cpu := &h.CPUs[i]; list.Has(cpu.ID) {
				cpu.Kind = k.kind
			}
		}
	}
}

// numbered returns the numbers of the names that are a word and a number.
func numbered(names []string, word string) IDList {
	list := IDList{}
	for _, name := range names {
		digits, ok := strings.CutPrefix(name, word)
		if !ok {
			continue
		}
		// The kernel writes no leading zeros: "cpu01" is none of its.
		if id, err := notation.ParseID(digits); err == nil && strconv.Itoa(id) == digits {
			list = append(list, id)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// index finds a CPU by its number.
func (h *Host) index(id int) (int, bool) {
	return slices.BinarySearchFunc(h.CPUs, id, func(c CPU, id int) int { return c.ID - id })
}

// byID is the CPU of a number; nil if there is none.
func (h *Host) byID(id int) *CPU {
	i, found := h.index(id)
	if !found {
		return nil
	}
	return &h.CPUs[i]
}
