package qemu

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/sysfs/notation"
	"github.com/vmlet/vmlet/vmm"
)

// ramParts are the nodes' memory in the one file that is copied out and filled.
func (b *builder) ramParts(size uint64) []vmm.MemoryPart {
	parts, err := vmm.MemoryParts(b.spec.GetNuma(), size)
	b.faults.Take(err)
	return parts
}

// near says which vCPUs' nodes the parts come from.
func (b *builder) near(parts []vmm.MemoryPart) (near []plan.Near) {
	numa := b.spec.GetNuma()
	if !numa.GetGuestMappingPassthrough() {
		return nil
	}
	if len(numa.GetNodes()) == 0 {
		b.faults.Add("numa.nodes", "with %s a VM in a pod has those of its pod's CPUs: this one is in none: name them", contract.FieldName("numa.guestMappingPassthrough"))
	}
	for _, part := range parts {
		vcpus, err := spec.ParseIDs(part.Node.GetCpus())
		if err != nil {
			b.faults.Add(fmt.Sprintf("numa.nodes[%d].cpus", part.Index), "%v", err)
		}
		near = append(near, plan.Near{Offset: part.Offset, Size: part.Size, VCPUs: vcpus})
	}
	return near
}

// ramID is the id of a part's backend, by which the device state knows it.
func ramID(part vmm.MemoryPart) string {
	if part.Index < 0 {
		return RAM
	}
	return fmt.Sprintf("ram%d", part.Index)
}

// regions are the parts as an image's manifest has them.
func (b *builder) regions(size uint64) []memory.Region {
	var out []memory.Region
	for _, part := range b.ramParts(size) {
		out = append(out, memory.Region{Name: ramID(part), Offset: part.Offset, Size: part.Size})
	}
	return out
}

// bind says which of the host's nodes the pages of a private mapping come from: with
// the guest's own file the shim does.
func (b *builder) bind(part vmm.MemoryPart, backend options) {
	if !b.lazy() {
		return
	}
	bindings, err := vmm.Bindings([]vmm.MemoryPart{part})
	b.faults.Take(err)
	if len(bindings) == 0 {
		return
	}
	if !b.details.HostNodes {
		b.faults.Add(fmt.Sprintf("numa.nodes[%d].hostNodes", part.Index), "QEMU %s at %s was built without libnuma, and can't bind memory of an image: restore it eagerly%s",
			b.req.Info.Version, b.req.Info.Binary, contract.Advice("without --lazy"))
	}
	backend["host-nodes"] = bindings[0].Nodes
	backend["policy"] = memoryPolicy(bindings[0].Policy)
}

// memoryPolicy is QEMU's word (qapi/machine.json, HostMemPolicy) for libvirt's.
func memoryPolicy(policy plan.MemoryPolicy) string {
	if policy == plan.MemoryStrict {
		return "bind"
	}
	return string(policy)
}

// numaArgs divides vCPUs and memory among the guest's nodes.
func (b *builder) numaArgs(parts []vmm.MemoryPart) {
	numa := b.spec.GetNuma()
	if numa == nil {
		return
	}
	if !b.family.hasNUMA() {
		b.faults.Add("numa", "the machine type %s has no NUMA nodes: leave it out, or use q35", b.machine.Name)
		return
	}
	memory := make(map[int]vmm.MemoryPart)
	for _, part := range parts {
		memory[part.Index] = part
	}
	for i, node := range numa.GetNodes() {
		pairs := append([]string{"nodeid", strconv.Itoa(i)}, b.nodeVCPUs(i, node)...)
		if part, has := memory[i]; has {
			pairs = append(pairs, "memdev", ramID(part))
		}
		b.arg("-numa", keyValues("node", pairs...))
	}
	if len(parts) > 1 && !b.details.MemoryOffset {
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
func (b *builder) nodeVCPUs(index int, node *specv1.NUMANode) []string {
	ids, err := spec.ParseIDs(node.GetCpus())
	if err != nil {
		b.faults.Add(fmt.Sprintf("numa.nodes[%d].cpus", index), "%v", err)
	}
	return ranges(ids)
}

func ranges(ids notation.IDList) []string {
	var pairs []string
	if len(ids) == 0 {
		return pairs
	}
	for part := range strings.SplitSeq(ids.String(), ",") {
		pairs = append(pairs, "cpus", part)
	}
	return pairs
}
