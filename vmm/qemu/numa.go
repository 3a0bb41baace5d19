package qemu

import (
	"fmt"
	"strconv"
	"strings"

	vmletv1 "github.com/vmlet/vmlet/proto/vmlet/v1"
	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/vmm/memory"
	"github.com/vmlet/vmlet/vmm/spec"
)

// ramPart is what one memory backend has of the file that is the guest's RAM.
type ramPart struct {
	// id of the backend, by which the device state knows it.
	id string
	// offset in the file and size, in bytes.
	offset, size uint64
	// index of the NUMA node that it is; -1: there are none.
	index int
	node  *vmletv1.NUMANode
}

// ramParts are the nodes' memory, one after another in the one file that is copied
// out and filled. The specification is valid.
func (b *builder) ramParts(size uint64) []ramPart {
	if b.spec.GetNuma() == nil {
		return []ramPart{{id: RAM, size: size, index: -1}}
	}
	var parts []ramPart
	offset := uint64(0)
	for i, node := range b.spec.GetNuma().GetNodes() {
		bytes, err := spec.ParseQuantity(node.GetMemory())
		if err != nil || bytes == 0 {
			continue // numaArgs tells of an error
		}
		parts = append(parts, ramPart{id: ramID(i), offset: offset, size: bytes, index: i, node: node})
		offset += bytes
	}
	return parts
}

func ramID(node int) string { return fmt.Sprintf("ram%d", node) }

// regions are the parts as an image's manifest has them.
func (b *builder) regions(size uint64) []memory.Region {
	var out []memory.Region
	for _, part := range b.ramParts(size) {
		out = append(out, memory.Region{Name: part.id, Offset: part.offset, Size: part.size})
	}
	return out
}

// bind says which of the host's nodes the pages come from. QEMU says it to the
// kernel for the mapping, and of a shared one the file itself remembers it
// (mbind(2)), whoever touches a page first.
func (b *builder) bind(part ramPart, backend options) {
	if part.node.GetHostNodes() == "" {
		return
	}
	field := fmt.Sprintf("numa.nodes[%d].hostNodes", part.index)
	if !b.details.HostNodes {
		b.faults.Add(field, "QEMU %s at %s was built without libnuma, and can't bind memory: leave it out, or install another QEMU", b.req.Info.Version, b.req.Info.Binary)
	}
	nodes, err := spec.ParseIDs(part.node.GetHostNodes())
	if err != nil {
		b.faults.Add(field, "%v", err)
	}
	backend["host-nodes"] = nodes
	backend["policy"] = memoryPolicy(part.node.GetPolicy())
}

// memoryPolicy is QEMU's word (qapi/machine.json, HostMemPolicy) for libvirt's.
func memoryPolicy(policy string) string {
	if policy == spec.MemoryStrict || policy == "" {
		return "bind"
	}
	return policy
}

// numaArgs divides vCPUs and memory among the guest's nodes.
func (b *builder) numaArgs() {
	numa := b.spec.GetNuma()
	if numa == nil {
		return
	}
	if !b.family.hasNUMA() {
		b.faults.Add("numa", "the machine type %s has no NUMA nodes: leave it out, or use q35", b.machine.Name)
		return
	}
	withMemory := 0
	for i, node := range numa.GetNodes() {
		pairs := []string{"nodeid", strconv.Itoa(i)}
		pairs = append(pairs, b.nodeVCPUs(i, node)...)
		bytes, err := spec.ParseQuantity(node.GetMemory())
		if err != nil {
			b.faults.Add(fmt.Sprintf("numa.nodes[%d].memory", i), "%v", err)
		}
		if bytes > 0 {
			pairs = append(pairs, "memdev", ramID(i))
			withMemory++
		}
		b.arg("-numa", keyValues("node", pairs...))
	}
	if withMemory > 1 && !b.details.MemoryOffset {
		b.faults.Add("numa.nodes", "QEMU %s at %s can't divide one file among several nodes (its memory-backend-file has no property offset): give all memory to one node, or install QEMU 8.1 or later",
			b.req.Info.Version, b.req.Info.Binary)
	}
	for from, row := range spec.NUMADistances(numa) {
		for to, distance := range row {
			if from != to {
				b.arg("-numa", keyValues("dist", "src", strconv.Itoa(from), "dst", strconv.Itoa(to), "val", strconv.Itoa(int(distance))))
			}
		}
	}
}

// nodeVCPUs are the ranges, each in an option of its own.
func (b *builder) nodeVCPUs(index int, node *vmletv1.NUMANode) []string {
	ids, err := spec.ParseIDs(node.GetCpus())
	if err != nil {
		b.faults.Add(fmt.Sprintf("numa.nodes[%d].cpus", index), "%v", err)
	}
	return ranges(ids)
}

func ranges(ids sysfs.IDList) []string {
	var pairs []string
	if len(ids) == 0 {
		return pairs
	}
	for part := range strings.SplitSeq(ids.String(), ",") {
		pairs = append(pairs, "cpus", part)
	}
	return pairs
}
