package spec

import (
	"fmt"
	"github.com/vmlet/vmlet/contract"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/sysfs/notation"
)

// numa wants every vCPU that there may be in one node, and all of the memory.
func (v *validator) numa(s *specv1.VirtualMachineSpec) {
	if s.GetNuma() == nil {
		return
	}
	nodes := s.GetNuma().GetNodes()
	if s.GetNuma().GetGuestMappingPassthrough() {
		v.guestMappingPassthrough(s)
		if len(nodes) == 0 {
			return
		}
	}
	if len(nodes) == 0 || len(nodes) > MaxNUMANodes {
		v.add("numa.nodes", "%d nodes: want 1 to %d, or no numa", len(nodes), MaxNUMANodes)
		return
	}
	n := numaCheck{validator: v, owner: make(map[int]int), vcpus: int(min(VCPULimit(s.GetCpu()), MaxVCPUs))}
	// What is wrong with it memory.hugePages says.
	n.page, _ = HugePageSize(s.GetMemory())
	for i, node := range nodes {
		n.node(fmt.Sprintf("numa.nodes[%d]", i), i, node)
		v.distances(fmt.Sprintf("numa.nodes[%d].distances", i), i, len(nodes), node.GetDistances())
	}
	n.allVCPUs()
	n.allMemory(s.GetMemory())
}

// guestMappingPassthrough wants CPUs that lie in some node for good, and memory that can be taken from it.
func (v *validator) guestMappingPassthrough(s *specv1.VirtualMachineSpec) {
	const field = "numa.guestMappingPassthrough"
	if s.GetCpu().GetDedicated() == nil {
		v.add(field, "it follows the vCPUs' CPUs, which can be anywhere: want %s beside it", contract.FieldName("cpu.dedicated"))
	}
	if s.GetMemory().GetHugePages() == nil {
		v.add(field, "each node's memory is set aside before the guest starts: want %s beside it", contract.FieldName("memory.hugePages"))
	}
	for i, node := range s.GetNuma().GetNodes() {
		if node.GetHostNodes() != "" {
			v.add(fmt.Sprintf("numa.nodes[%d].hostNodes", i), "its memory comes from where its vCPUs are (%s): leave it out", field)
		}
	}
}

// numaCheck is what the nodes have together.
type numaCheck struct {
	*validator
	owner  map[int]int // node by vCPU
	vcpus  int         // how many there may be
	page   uint64      // size of huge pages; 0: none
	memory uint64      // of all nodes
	unsure bool        // a node's vCPUs or memory is unknown
}

func (n *numaCheck) node(field string, index int, node *specv1.NUMANode) {
	cpus := n.ids(field+".cpus", node.GetCpus())
	n.own(field+".cpus", index, cpus)
	memory := n.nodeMemory(field+".memory", node.GetMemory())
	if memory == 0 && len(cpus) == 0 && !n.unsure {
		n.add(field, "has neither vCPUs nor memory")
	}
	n.binding(field, memory, node)
}

// own puts vCPUs into a node, and tells of the first that can't be.
func (n *numaCheck) own(field string, index int, cpus notation.IDList) {
	for _, cpu := range cpus {
		earlier, taken := n.owner[cpu]
		switch {
		case cpu >= n.vcpus:
			n.add(field, "there is no vCPU %d: they are 0 to %d (%s says how many there may be)", cpu, n.vcpus-1, contract.FieldName("cpu.maxVcpus"))
			return
		case taken:
			n.add(field, "vCPU %d is in %s too", cpu, contract.FieldName(fmt.Sprintf("numa.nodes[%d]", earlier)))
			return
		}
		n.owner[cpu] = index
	}
}

// ids says what is wrong with a list, and remembers that something is.
func (n *numaCheck) ids(field, text string) notation.IDList {
	list, err := ParseIDs(text)
	if err != nil {
		n.add(field, "%v", err)
		n.unsure = true
	}
	return list
}

func (n *numaCheck) nodeMemory(field, text string) uint64 {
	if text == "" {
		n.add(field, "is missing: want a size, or 0 for a node without memory")
		n.unsure = true
		return 0
	}
	bytes, err := ParseQuantity(text)
	switch {
	case err != nil:
	case bytes > MaxMemory:
		err = fmt.Errorf("%s is more than %s", text, FormatQuantity(MaxMemory))
	case bytes%MinMemory != 0:
		err = fmt.Errorf("%s is not a multiple of %s", text, FormatQuantity(MinMemory))
	case n.page != 0 && bytes%n.page != 0:
		err = fmt.Errorf("%s is not a multiple of the huge pages' %s", text, FormatQuantity(n.page))
	}
	if err != nil {
		n.add(field, "%v", err)
		n.unsure = true
		return 0
	}
	n.memory += bytes // 64 of 64 TiB at most
	return bytes
}

// binding is where on the host the memory comes from.
func (n *numaCheck) binding(field string, memory uint64, node *specv1.NUMANode) {
	n.oneOf(field+".policy", node.GetPolicy(), memoryPolicies())
	if node.GetHostNodes() == "" {
		if node.GetPolicy() != "" {
			n.add(field+".policy", "is for memory from certain nodes of the host: want hostNodes beside it")
		}
		return
	}
	hosts, err := ParseIDs(node.GetHostNodes())
	switch {
	case err != nil:
		n.add(field+".hostNodes", "%v", err)
	case memory == 0 && !n.unsure:
		n.add(field+".hostNodes", "the node has no memory to be taken from somewhere")
	case node.GetPolicy() == MemoryPreferred && len(hosts) != 1:
		n.add(field+".hostNodes", "%s: one node can be preferred, not %d", node.GetHostNodes(), len(hosts))
	}
}

func (n *numaCheck) allVCPUs() {
	if n.unsure {
		return
	}
	var without notation.IDList
	for cpu := range n.vcpus {
		if _, owned := n.owner[cpu]; !owned {
			without = append(without, cpu)
		}
	}
	if len(without) > 0 {
		n.add("numa.nodes", "vCPUs %s are in no node: put each of those that there may be (%s) into one", without, contract.FieldName("cpu.maxVcpus"))
	}
}

func (n *numaCheck) allMemory(m *specv1.Memory) {
	if n.unsure {
		return
	}
	if m.GetSize() == "" {
		n.add("memory.size", "is missing: with numa there is no default: want what its nodes have together, %s", FormatQuantity(n.memory))
		return
	}
	if size, err := ParseQuantity(m.GetSize()); err == nil && size != n.memory {
		n.add("numa.nodes", "they have %s of memory together, and %s is %s: want as much", FormatQuantity(n.memory), contract.FieldName("memory.size"), m.GetSize())
	}
}

func (v *validator) distances(field string, from, nodes int, distances []*specv1.NUMADistance) {
	if len(distances) > MaxNUMANodes {
		v.add(field, "%d distances: at most %d", len(distances), MaxNUMANodes)
		return
	}
	seen := make(map[uint32]bool)
	for i, d := range distances {
		at := fmt.Sprintf("%s[%d]", field, i)
		switch to := d.GetNode(); {
		case int64(to) >= int64(nodes):
			v.add(at+".node", "there is no node %d: they are 0 to %d", to, nodes-1)
		case to == uint32(from):
			v.add(at+".node", "%d is this node itself, which is at %d always", to, localDistance)
		case seen[to]:
			v.add(at+".node", "the distance to node %d is listed twice", to)
		default:
			seen[to] = true
		}
		if value := d.GetValue(); value < MinDistance || value > MaxDistance {
			v.add(at+".value", "%d is not between %d and %d", value, MinDistance, MaxDistance)
		}
	}
}
