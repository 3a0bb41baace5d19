package cloudhypervisor

import (
	"fmt"

	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
	"github.com/vmlet/vmlet/vmm/spec"
)

// numa divides the vCPUs among the guest's nodes. The memory can be one node's only:
// cloud-hypervisor has a zone for each, and maps the file of a zone from its
// beginning, and the guest's RAM is one file, which is what saving and restoring
// copies. A node without memory is a node of vCPUs, as Linux knows them.
func (b *builder) numa() {
	nodes := b.spec.GetNuma().GetNodes()
	distances := spec.NUMADistances(b.spec.GetNuma())
	withMemory := -1
	for i, n := range nodes {
		field := fmt.Sprintf("numa.nodes[%d]", i)
		node := chapi.NUMA{ID: uint32(i)}
		cpus, err := spec.ParseIDs(n.GetCpus())
		if err != nil {
			b.faults.Add(field+".cpus", "%v", err)
		}
		node.CPUs = numbers(cpus)
		bytes, err := spec.ParseQuantity(n.GetMemory())
		switch {
		case err != nil:
			b.faults.Add(field+".memory", "%v", err)
		case bytes > 0 && withMemory >= 0:
			b.faults.Add(field+".memory", "%s: with cloud-hypervisor all of the guest's memory is in one node, and numa.nodes[%d] has some: give it all, or use vmm: qemu", n.GetMemory(), withMemory)
		case bytes > 0:
			withMemory = i
			node.MemoryZones = []string{RAM}
		}
		if n.GetHostNodes() != "" {
			b.faults.Add(field+".hostNodes", "cloud-hypervisor binds no memory that is in a file, as a guest's RAM is here: leave it out, or use vmm: qemu")
		}
		if distances != nil {
			node.Distances = others(i, distances[i])
		}
		b.config.NUMA = append(b.config.NUMA, node)
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

func numbers(ids sysfs.IDList) []uint32 {
	out := make([]uint32, len(ids))
	for i, id := range ids {
		out[i] = uint32(id)
	}
	return out
}
