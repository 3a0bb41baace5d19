package vmm

import (
	"fmt"

	"github.com/vmlet/vmlet/plan"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// MemoryPart is a NUMA node's part of the file that is the guest's RAM.
type MemoryPart struct {
	// Index of the node; -1: the guest has none, and this is all of its memory.
	Index int
	Node  *specv1.NUMANode
	// Offset in the file and size, in bytes.
	Offset, Size uint64
}

// MemoryParts are the nodes' memory, one after another, of a specification that is
// valid; all of it where there are no nodes.
func MemoryParts(n *specv1.NUMA, size uint64) ([]MemoryPart, error) {
	if n == nil {
		return []MemoryPart{{Index: -1, Size: size}}, nil
	}
	var parts []MemoryPart
	var faults spec.FieldErrors
	offset := uint64(0)
	for i, node := range n.GetNodes() {
		bytes, err := spec.ParseQuantity(node.GetMemory())
		if err != nil {
			faults.Add(fmt.Sprintf("numa.nodes[%d].memory", i), "%v", err)
		}
		if bytes > 0 {
			parts = append(parts, MemoryPart{Index: i, Node: node, Offset: offset, Size: bytes})
		}
		offset += bytes
	}
	return parts, faults.Err()
}

// Bindings say which of the host's nodes the parts come from.
func Bindings(parts []MemoryPart) ([]plan.Binding, error) {
	var out []plan.Binding
	var faults spec.FieldErrors
	for _, p := range parts {
		nodes, err := spec.ParseIDs(p.Node.GetHostNodes())
		if err != nil {
			faults.Add(fmt.Sprintf("numa.nodes[%d].hostNodes", p.Index), "%v", err)
		}
		if len(nodes) == 0 {
			continue
		}
		policy := plan.MemoryPolicy(p.Node.GetPolicy())
		if policy == "" {
			policy = plan.MemoryStrict
		}
		out = append(out, plan.Binding{Offset: p.Offset, Size: p.Size, Nodes: nodes, Policy: policy})
	}
	return out, faults.Err()
}
