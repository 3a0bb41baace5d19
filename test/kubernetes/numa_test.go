package kubernetes_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/test/cluster"
	"github.com/vmlet/vmlet/test/kubernetes/report"
)

// affinity is how the kubelet calls it that a pod can't be aligned.
const affinity = "TopologyAffinityError"

// exclusive are the limits of a pod that has a CPU to itself, and devices.
func exclusive(resource, count string) map[string]string {
	return map[string]string{"cpu": "1", "memory": "32Mi", resource: count}
}

// given returns the PCI functions that a pod's container was given of a resource,
// and checks that its device nodes are those of their groups.
func (n *node) given(t *testing.T, p pod, resource string) (addresses []string, r report.Report) {
	t.Helper()
	r = n.report(t, p)
	variable := "PCI_RESOURCE_" + strings.ToUpper(strings.NewReplacer("/", "_", ".", "_").Replace(resource))
	if len(r.Given) != 1 || r.Given[variable] == "" {
		t.Fatalf("%s: variables are %q, want %s alone", p.name, r.Given, variable)
	}
	addresses = strings.Split(r.Given[variable], ",")
	want := []string{"vfio/vfio"}
	for _, address := range addresses {
		function, there := n.machine.functions[address]
		if !there {
			t.Fatalf("%s: there is no function %q", p.name, address)
		}
		want = append(want, fmt.Sprintf("vfio/%d", function.group))
	}
	slices.Sort(want)
	slices.Sort(r.Devices)
	if !slices.Equal(r.Devices, want) {
		t.Errorf("%s has %q and the devices %q, want %q", p.name, addresses, r.Devices, want)
	}
	return addresses, r
}

// nodes and bridges that functions are on and behind.
func (m *machine) nodes(addresses []string) []int {
	all := make(map[int]bool)
	for _, a := range addresses {
		all[m.functions[a].node] = true
	}
	return slices.Sorted(maps.Keys(all))
}

func (m *machine) bridges(addresses []string) []string {
	all := make(map[string]bool)
	for _, a := range addresses {
		all[m.functions[a].bridge] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// testSingleNode: with the policy single-numa-node a pod has devices and CPUs of
// one node or isn't run. On the node there are three pairs of GPUs behind a bridge
// each: which two of the six it is, vmlet is asked.
func (n *node) testSingleNode(t *testing.T) {
	n.allocatable(t, gpus, 8, 8)
	n.allocatable(t, cards, 2, 2)
	n.allocatable(t, disks, 2, 2)
	aligned := pod{"aligned", exclusive(gpus, "2"), nil}
	n.run(t, aligned)
	first, r := n.given(t, aligned, gpus)
	if len(first) != 2 || !slices.Equal(n.machine.nodes(first), []int{1}) || len(n.machine.bridges(first)) != 1 {
		t.Errorf("the pod has %q, want two of node 1 behind one bridge", first)
	}
	if len(r.CPUs) != 1 || !slices.Contains(n.machine.cpus[1], r.CPUs[0]) {
		t.Errorf("the pod's CPUs are %v, want one of %v", r.CPUs, n.machine.cpus[1])
	}
	n.wantAsked(t, aligned, gpus)
	// Without CPUs of their own any node will do, but one.
	taken := first
	pairs := []pod{{"pair-1", map[string]string{gpus: "2"}, nil}, {"pair-2", map[string]string{gpus: "2"}, nil}, {"pair-3", map[string]string{gpus: "2"}, nil}}
	n.run(t, pairs...)
	for _, p := range pairs {
		got, _ := n.given(t, p, gpus)
		if len(got) != 2 || len(n.machine.nodes(got)) != 1 || len(n.machine.bridges(got)) != 1 {
			t.Errorf("%s has %q, want two behind one bridge", p.name, got)
		}
		taken = append(taken, got...)
	}
	slices.Sort(taken)
	if len(slices.Compact(taken)) != 8 {
		t.Errorf("devices were given twice: %q", taken)
	}
	n.remove(t, append(pairs, aligned)...)
	n.wantRefused(t, pod{"two-nodes", map[string]string{cards: "2"}, nil}, pod{"cpu-elsewhere", exclusive(disks, "1"), nil})
	disk := pod{"disks", map[string]string{disks: "2"}, nil}
	n.run(t, disk)
	if got, _ := n.given(t, disk, disks); len(got) != 2 {
		t.Errorf("the pod has the disks %q, want both", got)
	}
	n.remove(t, disk)
}

// testRestricted: with the policy restricted a pod that needs two nodes has two,
// and one that would have to have two only because of what it is given is refused.
func (n *node) testRestricted(t *testing.T) {
	must(t, n.ConfigureKubelet(n.ctx, n.machine.kubelet("restricted")))
	n.forget(t, cards, disks)
	n.allocatable(t, cards, 2, 2)
	n.allocatable(t, disks, 2, 2)
	both := pod{"both-nodes", map[string]string{cards: "2"}, nil}
	n.run(t, both)
	if got, _ := n.given(t, both, cards); !slices.Equal(n.machine.nodes(got), []int{0, 1}) {
		t.Errorf("the pod has the cards %q, want one of each node", got)
	}
	n.remove(t, both)
	n.wantRefused(t, pod{"still-elsewhere", exclusive(disks, "1"), nil})
}

// forget takes resources out of the Node's status, so that what is there afterwards comes
// from the kubelet that runs now: it refuses pods until the plugins have registered again.
func (n *node) forget(t *testing.T, names ...string) {
	t.Helper()
	none := make(map[string]any, len(names))
	for _, name := range names {
		none[name] = nil
	}
	patch, err := json.Marshal(object{"status": object{"capacity": none, "allocatable": none}})
	must(t, err)
	n.kubectl(t, "patch", "node", cluster.NodeName, "--subresource", "status", "--type", "merge", "-p", string(patch))
}

// wantRefused: the kubelet doesn't run the pods, because they can't be aligned.
func (n *node) wantRefused(t *testing.T, pods ...pod) {
	t.Helper()
	n.create(t, pods...)
	for _, p := range pods {
		if got := n.outcome(t, p.name); !strings.HasPrefix(got, affinity+": ") {
			t.Errorf("%s was not refused as %s: %q", p.name, affinity, got)
		}
	}
	n.remove(t, pods...)
}

// wantAsked: the kubelet's log says that it has asked which devices are best.
func (n *node) wantAsked(t *testing.T, p pod, resource string) {
	t.Helper()
	uid := n.kubectl(t, "get", "pod", p.name, "-o", "jsonpath={.metadata.uid}")
	log, err := os.ReadFile(n.LogFile("kubelet"))
	must(t, err)
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "Issuing a GetPreferredAllocation call") && strings.Contains(line, uid) && strings.Contains(line, resource) {
			return
		}
	}
	t.Errorf("the kubelet hasn't asked which %s are best for %s", resource, p.name)
}
