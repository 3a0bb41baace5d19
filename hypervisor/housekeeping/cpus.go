package housekeeping

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vmlet/vmlet/sysfs"
)

// Want is what processors a VM is to have.
type Want struct {
	// CPUs is how many, all of one NUMA node: one for each virtual CPU, and one more where emulator threads are kept apart.
	CPUs int
	// Taken are those of other VMs.
	Taken sysfs.IDList
	// Node is the NUMA node wanted; nil: any.
	Node *int
}

// Chosen are processors for one VM.
type Chosen struct {
	// Node is the NUMA node that all are of; -1 on a machine that tells of none.
	Node int
	// CPUs in the order in which virtual CPUs should have them: those of one core follow one another.
	CPUs []int
}

// List returns the processors as a sorted set.
func (c *Chosen) List() sysfs.IDList {
	list := sysfs.IDList(slices.Clone(c.CPUs))
	slices.Sort(list)
	return list
}

// Choose picks processors of one NUMA node: online, allowed to this process, not taken, and not isolated from the scheduler
// (isolcpus=), which whoever isolated them has for something else. Whole cores come first, so that a VM shares no core with another
// as long as that can be; of the nodes that have enough, the one that has least to spare is taken. The error says what each node
// lacks.
func Choose(host *sysfs.Host, w Want) (*Chosen, error) {
	if w.CPUs < 1 {
		return nil, fmt.Errorf("%d dedicated CPUs: want at least one", w.CPUs)
	}
	nodes := usable(host, w)
	var best *nodeCPUs
	for _, n := range nodes {
		if n.count() >= w.CPUs && (best == nil || n.count() < best.count()) {
			best = n
		}
	}
	if best == nil {
		return nil, shortage(host, nodes, w)
	}
	return &Chosen{Node: best.id, CPUs: best.take(w.CPUs)}, nil
}

// nodeCPUs are the usable processors of a node, by core.
type nodeCPUs struct {
	id    int
	cores []coreCPUs
}

type coreCPUs struct {
	cpus []int
	// whole: every online thread of the core is among them.
	whole bool
}

func (n *nodeCPUs) count() (total int) {
	for _, c := range n.cores {
		total += len(c.cpus)
	}
	return total
}

// take prefers whole cores, among them the widest that fit, and breaks one up only for what is left over.
func (n *nodeCPUs) take(count int) []int {
	cores := slices.Clone(n.cores)
	slices.SortStableFunc(cores, func(a, b coreCPUs) int {
		if a.whole != b.whole {
			if a.whole {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.cpus[0], b.cpus[0])
	})
	var taken []int
	for _, c := range cores { // whole cores that are used up
		if c.whole && len(c.cpus) <= count-len(taken) {
			taken = append(taken, c.cpus...)
		}
	}
	for _, whole := range []bool{false, true} { // then odd threads, then a part of a core
		for _, c := range cores {
			if c.whole != whole {
				continue
			}
			for _, cpu := range c.cpus {
				if len(taken) < count && !slices.Contains(taken, cpu) {
					taken = append(taken, cpu)
				}
			}
		}
	}
	return taken
}

// usable sorts the processors that may be had into nodes.
func usable(host *sysfs.Host, w Want) []*nodeCPUs {
	online := make(map[int]int) // by core
	for _, cpu := range host.CPUs {
		if cpu.Online {
			online[cpu.Core]++
		}
	}
	byNode := make(map[int]map[int][]int)
	for _, cpu := range host.CPUs {
		if refusal(cpu, w) != "" {
			continue
		}
		core := cpu.Core
		if core < 0 {
			core = -1 - cpu.ID // a core that is not known is one of its own
		}
		if byNode[cpu.Node] == nil {
			byNode[cpu.Node] = make(map[int][]int)
		}
		byNode[cpu.Node][core] = append(byNode[cpu.Node][core], cpu.ID)
	}
	var nodes []*nodeCPUs
	for id, cores := range byNode {
		n := &nodeCPUs{id: id}
		for core, cpus := range cores {
			slices.Sort(cpus)
			n.cores = append(n.cores, coreCPUs{cpus, core < 0 || len(cpus) == online[core]})
		}
		slices.SortFunc(n.cores, func(a, b coreCPUs) int { return cmp.Compare(a.cpus[0], b.cpus[0]) })
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b *nodeCPUs) int { return cmp.Compare(a.id, b.id) })
	return nodes
}

// refusal says why a processor can't be had; empty: it can.
func refusal(cpu sysfs.CPU, w Want) string {
	switch {
	case w.Node != nil && cpu.Node != *w.Node:
		return "of another node"
	case !cpu.Online:
		return "offline"
	case !cpu.Allowed:
		return "not allowed by the cgroup"
	case cpu.Isolated:
		return "isolated (isolcpus=)"
	case w.Taken.Has(cpu.ID):
		return "dedicated to other VMs"
	}
	return ""
}

// shortage explains what is missing.
func shortage(host *sysfs.Host, nodes []*nodeCPUs, w Want) error {
	reasons := make(map[string]int)
	for _, cpu := range host.CPUs {
		if r := refusal(cpu, w); r != "" {
			reasons[r]++
		}
	}
	var have []string
	for _, n := range nodes {
		have = append(have, fmt.Sprintf("node %d has %d", n.id, n.count()))
	}
	if len(have) == 0 {
		have = append(have, "no node has any")
	}
	var refused []string
	for _, r := range []string{"of another node", "offline", "not allowed by the cgroup", "isolated (isolcpus=)", "dedicated to other VMs"} {
		if reasons[r] > 0 {
			refused = append(refused, fmt.Sprintf("%d %s", reasons[r], r))
		}
	}
	message := fmt.Sprintf("%d dedicated CPUs of one NUMA node are not to be had: %s", w.CPUs, strings.Join(have, ", "))
	if refused != nil {
		message += "; of the machine's CPUs are " + strings.Join(refused, ", ")
	}
	return fmt.Errorf("%s: want fewer, or stop a VM that has dedicated ones", message)
}
