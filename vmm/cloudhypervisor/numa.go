package cloudhypervisor

import (
	"fmt"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/sysfs/notation"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
)

// numa divides the vCPUs among the guest's nodes. The memory can be one node's only:
// cloud-hypervisor has a zone for each, and maps the file of a zone from its
// beginning, and the guest's RAM is one file, which is what saving and restoring
// copies. A node without memory is a node of vCPUs, as Linux knows them.
func (b *builder) numa(parts []vmm.MemoryPart) {
	if b.spec.GetNuma().GetGuestMappingPassthrough() {
		b.lacks("numa.guestMappingPassthrough", "with cloud-hypervisor all of the guest's memory is in one node: leave it out")
	}
	distances := spec.NUMADistances(b.spec.GetNuma())
	for i, n := range b.spec.GetNuma().GetNodes() {
		node := chapi.NUMA{ID: uint32(i)}
		cpus, err := spec.ParseIDs(n.GetCpus())
		if err != nil {
			b.faults.Add(fmt.Sprintf("numa.nodes[%d].cpus", i), "%v", err)
		}
		node.CPUs = numbers(cpus)
		if distances != nil {
			node.Distances = others(i, distances[i])
		}
		b.config.NUMA = append(b.config.NUMA, node)
	}
	for at, p := range parts {
		switch {
		case p.Node == nil:
		case at > 0:
			b.lacks(fmt.Sprintf("numa.nodes[%d].memory", p.Index), "%s: with cloud-hypervisor all of the guest's memory is in one node, and %s has some: give it all",
				p.Node.GetMemory(), contract.FieldName(fmt.Sprintf("numa.nodes[%d]", parts[0].Index)))
		default:
			b.config.NUMA[p.Index].MemoryZones = []string{RAM}
		}
		if p.Node.GetHostNodes() != "" && b.lazy() {
			b.faults.Add(fmt.Sprintf("numa.nodes[%d].hostNodes", p.Index), "cloud-hypervisor binds no memory that it maps from an image: restore it eagerly%s", contract.Advice("without --lazy"))
		}
	}
}

// others are the distances to all nodes but this one.
func others(from int, row []uint8) []chapi.NUMADistance {
	var out []chapi.NUMADistance
	for to, distance := range row {
		if to != from {
			out = append(out, chapi.NUMADistance{To: uint32(to), Distance: distance})
		}
	}
	return out
}

func numbers(ids notation.IDList) []uint32 {
	out := make([]uint32, len(ids))
	for i, id := range ids {
		out[i] = uint32(id)
	}
	return out
}
