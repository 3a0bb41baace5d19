package sysfs

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// nodeFolder is where the NUMA nodes are (Documentation/ABI/stable/sysfs-devices-node).
const nodeFolder = "devices/system/node"

// nodes reads the NUMA nodes: those that have a folder. Where there is no folder
// of nodes at all (a kernel without CONFIG_NUMA), the machine is reported to have
// none and its CPUs to be in none, as lscpu and numactl do; to make up a node
// with all CPUs is left to its readers.
func (r memoryReader) nodes(h *Host) {
	h.CPUSets.PossibleNodes, _ = r.list(r.sys(nodeFolder + "/possible"))
	online, told := r.list(r.sys(nodeFolder + "/online"))
	ids := numbered(r.names(r.sys(nodeFolder)), "node")
	for _, id := range online {
		if !ids.Has(id) {
			r.note(r.nodePath(id), "node %d is listed as online and has no directory", id)
		}
	}

	h.Nodes = make([]Node, 0, len(ids))
	for _, id := range ids {
		node := Node{ID: id, Online: !told || online.Has(id), Distances: []int{}}
		path := r.nodePath(id)
		node.CPUs = r.settle(h, path, id)
		node.Memory, node.MemoryFree = r.nodeMemory(path + "meminfo")
		node.HugePages = r.pools(path + "hugepages")
		h.Nodes = append(h.Nodes, node)
	}
	r.settleOffline(h)
	r.distances(h)
}

// nodePath returns a node's folder, with a slash behind it.
func (r memoryReader) nodePath(id int) string {
	return r.sys(nodeFolder + "/node" + strconv.Itoa(id) + "/")
}

// settle puts CPUs into a node, and returns those that are there and are in no
// other one.
func (r memoryReader) settle(h *Host, folder string, node int) IDList {
	mine := IDList{}
	path := folder + "cpulist"
	_, listed, _ := r.cpuList(folder, []string{"cpulist"}, []string{"cpumap"})
	if !r.worthwhile(path, listed) {
		return mine
	}
	left := 0
	for _, id := range listed {
		cpu := h.byID(id)
		switch {
		case cpu != nil && cpu.Node < 0:
			cpu.Node = node
			mine = append(mine, id)
		// s390x lists those that may come, too.
		case cpu != nil || !h.CPUSets.Possible.Has(id):
			left++
		}
	}
	if left > 0 {
		r.note(path, "%.80q names CPUs that are not there or in another node already (%d of them)", listed.String(), left)
	}
	return mine
}

// settleOffline finds the nodes of the CPUs that are offline, which the nodes'
// lists leave out: the folder of a CPU has a link of its node's name.
func (r memoryReader) settleOffline(h *Host) {
	if len(h.Nodes) == 0 {
		return
	}
	for i := range h.CPUs {
		cpu := &h.CPUs[i]
		if cpu.Online || cpu.Node >= 0 {
			continue
		}
		for _, id := range numbered(r.names(r.cpuPath(cpu.ID)), "node") {
			n, found := slices.BinarySearchFunc(h.Nodes, id, func(n Node, id int) int { return n.ID - id })
			if !found {
				r.note(r.cpuPath(cpu.ID)+"node"+strconv.Itoa(id), "there is no such node")
				continue
			}
			cpu.Node = id
			h.Nodes[n].CPUs = append(h.Nodes[n].CPUs, cpu.ID)
			slices.Sort(h.Nodes[n].CPUs)
			break
		}
	}
}

// nodeMemory reads a node's own meminfo, whose lines are like those of
// /proc/meminfo behind "Node N ". It is not read with procfs, where one node's
// bad line costs the memory of all of them.
//
// Every node has this file, and one without memory says 0: where there is no
// figure, that is noted, or the node would pass for a memory-less one.
func (r memoryReader) nodeMemory(path string) (total, free uint64) {
	text, ok := r.text(path)
	if !ok && !r.exists(path) {
		r.note(path, "there is no such file, so the node's memory is not known")
	}
	if !ok {
		return 0, 0
	}
	told := false
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[0] != "Node" {
			continue
		}
		switch fields[2] {
		case "MemTotal:":
			total, told = r.kibibytes(path, fields[3:]), true
		case "MemFree:":
			free = r.kibibytes(path, fields[3:])
		}
	}
	if !told {
		r.note(path, "it has no line MemTotal, so the node's memory is not known")
	}
	return total, free
}

// kibibytes reads "1024 kB", in bytes.
func (r memoryReader) kibibytes(path string, fields []string) uint64 {
	n, err := strconv.ParseUint(fields[0], 10, 64)
	if err != nil || n > math.MaxUint64>>10 || len(fields) != 2 || fields[1] != "kB" {
		r.note(path, "%.40q is no amount of memory in kB", strings.Join(fields, " "))
		return 0
	}
	return n << 10
}

// distances reads each online node's row, which has a number for each node that
// is online, in their order.
func (r memoryReader) distances(h *Host) {
	online := 0
	for _, node := range h.Nodes {
		if node.Online {
			online++
		}
	}
	for i := range h.Nodes {
		if node := &h.Nodes[i]; node.Online {
			node.Distances = r.row(r.nodePath(node.ID)+"distance", online)
		}
	}
}

func (r memoryReader) row(path string, length int) []int {
	text, ok := r.text(path)
	if !ok {
		return []int{}
	}
	fields := strings.Fields(text)
	if len(fields) != length {
		r.note(path, "it has %d distances, and %d nodes are online", len(fields), length)
		return []int{}
	}
	row := make([]int, length)
	for i, field := range fields {
		// The SLIT has bytes (ACPI specification, System Locality Information
		// Table); other firmware may have more.
		n, err := strconv.ParseUint(field, 10, 16)
		if err != nil {
			r.note(path, "%.40q is no distance", field)
			return []int{}
		}
		row[i] = int(n)
	}
	return row
}
