// Package dedicated gives each vCPU of a VM one of the node's CPUs to itself. Which CPUs these are was
// decided before by anyone who made the cpuset that this process is in: in a pod the kubelet's static CPU
// manager. The package must not know of VMMs: its caller says which of a process' threads run vCPUs. Start
// reading at Place, which decides, and Pin, which moves threads.
package dedicated

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Wanted is how CPUs are to be divided.
type Wanted struct {
	// VCPUs is how many vCPUs there are.
	VCPUs int
	// Isolate: the VMM's other threads have a CPU of their own and not the vCPUs', or two, where whole cores are handed out.
	Isolate bool
}

// are checks the number of CPUs.
func (w Wanted) are(n int) error {
	switch spare := n - w.VCPUs; {
	case !w.Isolate && spare != 0:
		return fmt.Errorf("%d CPUs are wanted for %d vCPUs, and there are %d", w.VCPUs, w.VCPUs, n)
	case w.Isolate && spare != 1 && spare != 2:
		return fmt.Errorf("%d CPUs are wanted for %d vCPUs and the VMM, and there are %d", w.VCPUs+1, w.VCPUs, n)
	}
	return nil
}

// Placement is which CPU each thread has.
type Placement struct {
	// VCPUs[i] is the CPU of vCPU i.
	VCPUs []int
	// Others are the CPUs of the VMM's other threads.
	Others []int
}

// CPU is where a CPU is in its machine.
type CPU struct {
	// Core is any name that the CPUs of one core share, and no others.
	Core string
	// Node is its NUMA node; NoNode: it is not known, or the kernel has none.
	Node int
}

// NoNode is the node of CPUs that are in none.
const NoNode = -1

// Place divides CPUs. The VMM gets those whose cores it shares with the fewest, of the node with the fewest;
// the vCPUs' are in the order of their nodes, and those of one core stay together, whole cores first, so that vCPUs that the guest takes
// for threads of a core are, and a node's vCPUs follow one another. There must be just as many CPUs as it
// takes: more are shared with others, and fewer are too few.
func Place(w Wanted, cpus []int, where func(cpu int) CPU) (Placement, error) {
	if err := w.are(len(cpus)); err != nil {
		return Placement{}, fmt.Errorf("%w (%s)", err, list(cpus))
	}
	at := make(map[int]CPU)
	first, size := make(map[string]int), make(map[string]int) // of each core, the lowest CPU and how many
	inNode := make(map[int]int)
	sorted := slices.Sorted(slices.Values(cpus))
	for _, cpu := range sorted {
		at[cpu] = where(cpu)
		core := at[cpu].Core
		if size[core]++; size[core] == 1 {
			first[core] = cpu
		}
		inNode[at[cpu].Node]++
	}
	byCore := func(a, b int) int { return cmp.Compare(first[at[a].Core], first[at[b].Core]) }
	bySize := func(a, b int) int { return cmp.Compare(size[at[b].Core], size[at[a].Core]) }
	byNode := func(a, b int) int { return cmp.Compare(at[a].Node, at[b].Node) }
	slices.SortStableFunc(sorted, func(a, b int) int {
		return cmp.Or(bySize(a, b), cmp.Compare(inNode[at[b].Node], inNode[at[a].Node]), byNode(a, b), byCore(a, b))
	})
	p := Placement{VCPUs: slices.Clone(sorted[:w.VCPUs]), Others: sorted[w.VCPUs:]}
	slices.SortStableFunc(p.VCPUs, func(a, b int) int { return cmp.Or(byNode(a, b), bySize(a, b), byCore(a, b)) })
	if !w.Isolate {
		p.Others = p.VCPUs
	}
	return p, nil
}

// Nodes are the NUMA nodes that the CPUs of these vCPUs, which there are, are in, in ascending order.
func (p Placement) Nodes(vcpus []int, where func(cpu int) CPU) []int {
	nodes := make(map[int]bool)
	for _, v := range vcpus {
		nodes[where(p.VCPUs[v]).Node] = true
	}
	return slices.Sorted(maps.Keys(nodes))
}

// list has CPUs for people.
func list(cpus []int) string {
	const most = 16
	var words []string
	for _, cpu := range cpus[:min(len(cpus), most)] {
		words = append(words, strconv.Itoa(cpu))
	}
	if len(cpus) > most {
		words = append(words, "…")
	}
	return strings.Join(words, ",")
}
