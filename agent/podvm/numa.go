package podvm

import (
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/contract"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/shim/dedicated"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/sysfs"
)

const fieldPassthrough = "numa.guestMappingPassthrough"

// passNUMA gives the guest the NUMA nodes of the CPUs that its container was given. The kernel says which
// these are, and the shim places vCPUs on them by the same rule.
func (p *Runner) passNUMA(h *placement, s *specv1.VirtualMachineSpec) error {
	if n := s.GetNuma(); !n.GetGuestMappingPassthrough() || len(n.GetNodes()) > 0 {
		return nil
	}
	cpus, err := p.pods.CPUs(h.shimID)
	if err != nil {
		return fmt.Errorf("%s: the CPUs of the pod's container: %w", fieldPassthrough, err)
	}
	s.Numa, err = guestNUMA(s, cpus, p.node.ReadHost())
	return err
}

// guestNUMA returns a node for each node of the host that vCPUs have CPUs in, all with the same memory.
func guestNUMA(s *specv1.VirtualMachineSpec, cpus []int, host *sysfs.Host) (*specv1.NUMA, error) {
	where := whereOn(host)
	wanted := dedicated.Wanted{VCPUs: int(spec.VCPUs(s.GetCpu())), Isolate: s.GetCpu().GetDedicated().GetIsolateEmulatorThread()}
	placed, err := dedicated.Place(wanted, cpus, where)
	if err != nil {
		return nil, fault.Invalid("cpu.dedicated", "%v: the kubelet's static CPU manager gives whole CPUs (cpuManagerPolicy: static)", err)
	}
	numa := proto.CloneOf(s.GetNuma())
	var nodes []int // of the host, by the guest's
	var vcpus []sysfs.IDList
	for vcpu, cpu := range placed.VCPUs {
		if node := where(cpu).Node; len(nodes) == 0 || nodes[len(nodes)-1] != node {
			nodes, vcpus = append(nodes, node), append(vcpus, nil)
		}
		vcpus[len(vcpus)-1] = append(vcpus[len(vcpus)-1], vcpu)
	}
	if len(nodes) > spec.MaxNUMANodes {
		return nil, fault.Invalid(fieldPassthrough, "the pod's CPUs are in %d nodes: a guest has at most %d", len(nodes), spec.MaxNUMANodes)
	}
	threads := int(max(s.GetCpu().GetThreads(), 1))
	memory, err := shareMemory(s.GetMemory(), len(nodes))
	if err != nil {
		return nil, err
	}
	for i, node := range nodes {
		if len(vcpus[i])%threads != 0 {
			return nil, fault.Invalid(fieldPassthrough, "the pod has %d of its CPUs in node %d of the host, which are no whole cores of %d threads: have the kubelet give whole cores (full-pcpus-only), or the guest fewer %s",
				len(vcpus[i]), node, threads, contract.FieldName("cpu.threads"))
		}
		numa.Nodes = append(numa.Nodes, &specv1.NUMANode{Cpus: vcpus[i].String(), Memory: spec.FormatQuantity(memory[i]), Distances: distances(host, nodes, i)})
	}
	return numa, nil
}

// whereOn returns where CPUs are, by the agent's reading of the host. It must agree with dedicated.Where, by which
// the shim places the vCPUs.
func whereOn(host *sysfs.Host) func(cpu int) dedicated.CPU {
	return func(cpu int) dedicated.CPU {
		i := slices.IndexFunc(host.CPUs, func(c sysfs.CPU) bool { return c.ID == cpu })
		if i < 0 || host.CPUs[i].Core < 0 {
			return dedicated.CPU{Core: "cpu" + strconv.Itoa(cpu), Node: dedicated.NoNode}
		}
		return dedicated.CPU{Core: strconv.Itoa(host.CPUs[i].Core), Node: host.CPUs[i].Node}
	}
}

// shareMemory divides whole huge pages evenly.
func shareMemory(m *specv1.Memory, nodes int) ([]uint64, error) {
	size, err := spec.ParseQuantity(m.GetSize())
	if err != nil {
		return nil, fault.Invalid("memory.size", "%v", err)
	}
	page, err := spec.HugePageSize(m)
	if err != nil {
		return nil, fault.Invalid("memory.hugePages.pageSize", "%v", err)
	}
	pages, n := size/page, uint64(nodes)
	if pages < n {
		return nil, fault.Invalid("memory.size", "%s are %d huge pages, and the pod's CPUs are in %d nodes: each needs one", m.GetSize(), pages, nodes)
	}
	out := make([]uint64, nodes)
	for i := range n {
		out[i] = pages / n * page
		if i < pages%n {
			out[i] += page
		}
	}
	return out, nil
}

// distances returns the host's distances from one of the guest's nodes to the others, without those that the host
// does not report.
func distances(host *sysfs.Host, nodes []int, from int) (out []*specv1.NUMADistance) {
	var online []sysfs.Node
	for _, n := range host.Nodes {
		if n.Online {
			online = append(online, n)
		}
	}
	index := func(id int) int { return slices.IndexFunc(online, func(n sysfs.Node) bool { return n.ID == id }) }
	at := index(nodes[from])
	if at < 0 {
		return nil
	}
	for to, id := range nodes {
		there := index(id)
		if to == from || there < 0 || there >= len(online[at].Distances) {
			continue
		}
		if d := online[at].Distances[there]; d >= spec.MinDistance && d <= spec.MaxDistance {
			out = append(out, &specv1.NUMADistance{Node: uint32(to), Value: uint32(d)})
		}
	}
	return out
}
