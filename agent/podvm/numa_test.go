package podvm

import (
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/vmlet/vmlet/agent/lifecycle"
	"github.com/vmlet/vmlet/agent/vm/vmtest"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/shim/dedicated"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/sysfs"
)

// numaHost has two nodes with four cores of two threads each, n and n+8; the even CPUs are in node 0.
func numaHost() *sysfs.Host {
	host := &sysfs.Host{Nodes: []sysfs.Node{
		{ID: 0, Online: true, Distances: []int{10, 21}}, {ID: 1, Online: true, Distances: []int{21, 10}},
	}}
	for cpu := range 16 {
		host.CPUs = append(host.CPUs, sysfs.CPU{ID: cpu, Core: cpu % 8, Node: cpu % 2})
	}
	return host
}

func TestGuestNUMA(t *testing.T) {
	for name, c := range map[string]struct {
		spec string
		cpus []int
		want string // the nodes, or part of an error
	}{
		"one node":    {"cpu: {cores: 2, dedicated: {}}\nmemory: {size: 8Mi, hugePages: {pageSize: 2Mi}}", []int{2, 4}, "0-1 8Mi"},
		"two nodes":   {"cpu: {cores: 4, dedicated: {}}\nmemory: {size: 8Mi, hugePages: {pageSize: 2Mi}}", []int{0, 1, 2, 3}, "0-1 4Mi 1:21, 2-3 4Mi 0:21"},
		"odd pages":   {"cpu: {cores: 2, dedicated: {}}\nmemory: {size: 6Mi, hugePages: {pageSize: 2Mi}}", []int{0, 1}, "0 4Mi 1:21, 1 2Mi 0:21"},
		"uneven CPUs": {"cpu: {cores: 3, dedicated: {isolateEmulatorThread: true}}\nmemory: {size: 4Mi, hugePages: {pageSize: 2Mi}}", []int{1, 9, 0, 2}, "0 2Mi 1:21, 1-2 2Mi 0:21"},
		"threads":     {"cpu: {cores: 2, threads: 2, dedicated: {}}\nmemory: {size: 4Mi, hugePages: {pageSize: 2Mi}}", []int{1, 9, 4, 12}, "0-1 2Mi 1:21, 2-3 2Mi 0:21"},
		"half cores":  {"cpu: {cores: 2, threads: 2, dedicated: {}}\nmemory: {size: 4Mi, hugePages: {pageSize: 2Mi}}", []int{1, 9, 3, 0}, "numa.guestMappingPassthrough: the pod has 1 of its CPUs in node 0"},
		"few pages":   {"cpu: {cores: 2, dedicated: {}}\nmemory: {size: 2Mi, hugePages: {pageSize: 2Mi}}", []int{0, 1}, "memory.size: 2Mi are 1 huge pages"},
		"shared CPUs": {"cpu: {cores: 2, dedicated: {}}\nmemory: {size: 4Mi, hugePages: {pageSize: 2Mi}}", []int{0, 1, 2}, "cpu.dedicated: 2 CPUs are wanted"},
	} {
		s, err := spec.Parse([]byte("name: a\nboot: {kernel: {path: /kernel}}\nnuma: {guestMappingPassthrough: true}\n"+c.spec), "test")
		if err != nil {
			t.Fatal(name, err)
		}
		numa, err := guestNUMA(s, c.cpus, numaHost())
		if err != nil {
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %s", name, err, c.want)
			}
			continue
		}
		if got := nodesText(numa); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		s.Numa = numa
		if err := spec.Validate(s); err != nil {
			t.Errorf("%s: it is not valid: %v", name, err)
		}
	}
}

// nodesText are CPUs, memory and distances.
func nodesText(n *specv1.NUMA) string {
	var nodes []string
	for _, node := range n.GetNodes() {
		text := node.GetCpus() + " " + node.GetMemory()
		for _, d := range node.GetDistances() {
			text += " " + string(rune('0'+d.GetNode())) + ":" + spec.FormatQuantity(uint64(d.GetValue()))
		}
		nodes = append(nodes, text)
	}
	return strings.Join(nodes, ", ")
}

// TestGuestNUMAUnknown: a kernel without nodes has one.
func TestGuestNUMAUnknown(t *testing.T) {
	s := &specv1.VirtualMachineSpec{
		Cpu: &specv1.CPU{Cores: 2, Dedicated: &specv1.DedicatedCPUs{}}, Numa: &specv1.NUMA{GuestMappingPassthrough: true},
		Memory: &specv1.Memory{Size: "4Mi", HugePages: &specv1.HugePages{PageSize: "2Mi"}},
	}
	numa, err := guestNUMA(s, []int{5, 6}, new(sysfs.Host))
	if got := nodesText(numa); err != nil || got != "0-1 4Mi" {
		t.Errorf("%s (%v)", got, err)
	}
	if !numa.GetGuestMappingPassthrough() || proto.Equal(numa, s.Numa) {
		t.Errorf("%v, of %v", numa, s.Numa)
	}
}

// TestAsTheShimPlaces: agent and shim agree which CPUs of this machine vCPUs get.
func TestAsTheShimPlaces(t *testing.T) {
	cpus, err := dedicated.Of(0)
	if err != nil {
		t.Fatal(err)
	}
	wanted, host := dedicated.Wanted{VCPUs: len(cpus)}, sysfs.Read(sysfs.Roots{})
	agent, errAgent := dedicated.Place(wanted, cpus, whereOn(host))
	shim, errShim := dedicated.Place(wanted, cpus, dedicated.Where)
	if errAgent != nil || errShim != nil || !reflect.DeepEqual(agent, shim) {
		t.Errorf("the agent has %v (%v), the shim %v (%v)", agent, errAgent, shim, errShim)
	}
	for _, cpu := range cpus {
		if got, want := whereOn(host)(cpu).Node, dedicated.Where(cpu).Node; got != want {
			t.Errorf("CPU %d is in node %d for the agent, in %d for the shim", cpu, got, want)
		}
	}
}

// TestPodNUMA: a VM's nodes are those of its container's CPUs, and are in its plan.
func TestPodNUMA(t *testing.T) {
	w := newWorld(t)
	n := newFakeNode(w)
	a := w.start()
	a.node.ReadHost = numaHost
	n.cpus = []int{0, 1}
	n.servePod(t, a)
	n.container(func(p *vmtest.Pod) {
		p.Described.Specification = []byte(podSpec + "cpu: {cores: 2, dedicated: {}}\nmemory: {size: 64Mi, hugePages: {pageSize: 2Mi}}\nnuma: {guestMappingPassthrough: true}\n")
	})
	vmtest.Eventually(t, "it runs", a.is(lifecycle.Running))
	m, _ := a.Get(t.Context(), podVM)
	if got := nodesText(m.Snapshot().GetStatus().GetEffectiveSpec().GetNuma()); got != "0 32Mi 1:21, 1 32Mi 0:21" {
		t.Errorf("the guest's nodes are %s", got)
	}
}
