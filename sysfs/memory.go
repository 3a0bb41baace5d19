package sysfs

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
)

// memoryReader reads the machine's memory, and that of its NUMA nodes.
type memoryReader struct{ *reader }

// memory reads what the machine has of it, and the kernel's ways with it.
func (r memoryReader) memory(h *Host) {
	r.meminfo(&h.Memory)
	const mm = "kernel/mm/"
	h.Memory.TransparentHugePages = r.chosen(r.sys(mm + "transparent_hugepage/enabled"))
	h.Memory.TransparentHugePagesShmem = r.chosen(r.sys(mm + "transparent_hugepage/shmem_enabled"))
	h.Memory.KSM = r.ksm(r.sys(mm + "ksm/"))
	h.HugePages = r.pools(r.sys(mm + "hugepages"))
}

// meminfo reads /proc/meminfo with procfs. That opens the file by its path and
// would wait for a pipe's other end or follow a link anywhere, so the file is
// looked at first.
func (r memoryReader) meminfo(m *Memory) {
	path := r.proc("meminfo")
	if _, ok := r.text(path); !ok {
		return
	}
	proc, err := procfs.NewFS(r.roots.ProcPath())
	if err != nil {
		r.note(path, "%v", err)
		return
	}
	info, err := proc.Meminfo()
	if err != nil {
		r.note(path, "%v", err)
		return
	}
	m.Total, m.Available = r.told(path, "MemTotal", info.MemTotal), r.told(path, "MemAvailable", info.MemAvailable)
	m.SwapTotal, m.SwapFree = r.told(path, "SwapTotal", info.SwapTotal), r.told(path, "SwapFree", info.SwapFree)
}

// NodeMemoryDiffers says whether a machine's memory and that of its NUMA nodes together,
// in bytes, differ by more than an eighth of the larger. Linux counts both alike: where they
// differ, a container's /proc shows a part of the machine, or a balloon has taken pages
// away. 0 is unknown, and differs from nothing.
func NodeMemoryDiffers(machine, nodes uint64) bool {
	less, more := min(machine, nodes), max(machine, nodes)
	return less > 0 && more-less > more/8
}

// told returns a line of meminfo, which is in KiB, in bytes. Every Linux since
// 3.14 has those that are asked for.
func (r memoryReader) told(path, line string, value *uint64) uint64 {
	switch {
	case value == nil:
		r.note(path, "it has no line %s", line)
	case *value > math.MaxUint64>>10:
		r.note(path, "%s: %d kB is too much to make sense", line, *value)
	default:
		return *value << 10
	}
	return 0
}

// chosen returns the word in brackets: "always [madvise] never".
func (r memoryReader) chosen(path string) string {
	text, ok := r.text(path)
	if !ok {
		return ""
	}
	_, rest, opened := strings.Cut(text, "[")
	word, _, closed := strings.Cut(rest, "]")
	if !opened || !closed || !isWord(word) {
		r.note(path, "%.40q has no word in brackets", text)
		return ""
	}
	return word
}

// ksm is nil where the kernel has none.
func (r memoryReader) ksm(path string) *KSM {
	run, ok := r.number(path + "run")
	if !ok {
		return nil
	}
	if run < 0 || run > 2 {
		r.note(path+"run", "%d is no state of KSM", run)
		return nil
	}
	ksm := &KSM{Run: int(run), PagesShared: r.count(path + "pages_shared"), PagesSharing: r.count(path + "pages_sharing")}
	// Without NUMA there is no such file, and nothing to cross.
	across, told := r.number(path + "merge_across_nodes")
	ksm.MergeAcrossNodes = !told || across != 0
	return ksm
}

// pools reads the folders "hugepages-2048kB" of the machine or of a node
// (Documentation/admin-guide/mm/hugetlbpage.rst).
func (r memoryReader) pools(path string) []HugePages {
	pools := []HugePages{}
	for _, name := range r.names(path) {
		digits, ok := strings.CutPrefix(name, "hugepages-")
		digits, ok2 := strings.CutSuffix(digits, "kB")
		size, err := strconv.ParseUint(digits, 10, 64)
		// No page is larger than 16 GiB, on POWER; a pebibyte surely isn't one.
		if !ok || !ok2 || err != nil || size == 0 || size > 1<<40 {
			r.note(path+"/"+name, "the name is no size of pages")
			continue
		}
		pool := path + "/" + name + "/"
		pools = append(pools, HugePages{
			PageSize: size << 10,
			Total:    r.count(pool + "nr_hugepages"),
			Free:     r.count(pool + "free_hugepages"),
			Reserved: r.count(pool + "resv_hugepages"),
			Surplus:  r.count(pool + "surplus_hugepages"),
		})
	}
	slices.SortFunc(pools, func(a, b HugePages) int { return cmp.Compare(a.PageSize, b.PageSize) })
	return pools
}
