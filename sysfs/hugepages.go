package sysfs

// NodeHugePages are the pools of one NUMA node.
type NodeHugePages struct {
	// Node is its number; -1: the whole machine, where the kernel has no nodes.
	Node  int
	Pools []HugePages
}

// ReadHugePages reads the pools of huge pages, and nothing else of the machine:
// it takes microseconds. What can't be read is left out.
func ReadHugePages(roots Roots) []NodeHugePages {
	r := memoryReader{&reader{roots: roots}}
	defer r.close()
	ids := numbered(r.names(r.sys(nodeFolder)), "node")
	if len(ids) == 0 {
		return []NodeHugePages{{Node: -1, Pools: r.pools(r.sys("kernel/mm/hugepages"))}}
	}
	all := make([]NodeHugePages, 0, len(ids))
	for _, id := range ids {
		all = append(all, NodeHugePages{Node: id, Pools: r.pools(r.nodePath(id) + "hugepages")})
	}
	return all
}
