package virtualmachines_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/test/cluster"
)

const hypervisorPart = "hypervisor"

// withHypervisor returns fields of a kubelet's configuration, and has the programs that are built from now on
// know one more hypervisor, a folder and a line: testHypervisor's.
func withHypervisor(t *testing.T) map[string]any {
	t.Helper()
	t.Setenv("GOFLAGS", os.Getenv("GOFLAGS")+" -overlay="+withSample(t))
	t.Cleanup(func() { // the node has the machine's /dev
		os.Remove("/dev/sample")
		os.Remove("/dev/sample-firmware")
	})
	return map[string]any{
		// One CPU is pods' whose CPUs nobody has to himself.
		"cpuManagerPolicy": "static", "kubeReserved": map[string]string{"cpu": "100m"},
	}
}

// testHypervisor runs VMs of the hypervisor that was added: by the cluster's word they are scheduled by its
// device, beside VMs of another one.
func (v *installed) testHypervisor(t *testing.T) {
	v.configure(t, `{"hypervisorConfiguration":{"name":"sample"},"developerConfiguration":{"useEmulation":true,"featureGates":["ConfigurableHypervisor"]}}`)
	for _, part := range []struct {
		name string
		test func(*testing.T)
	}{
		{"waits for a device", v.testWaitsForSample},
		{"two hypervisors", v.testTwoHypervisors},
		{"refused", v.testRefusedBySample},
		{"rollback", v.testRollback},
		{"dedicated CPUs", v.testDedicatedCPUs},
		{"stacks", v.testStacks},
		{"huge pages", v.testHugePages},
		{"NUMA", v.testNUMA},
	} {
		t.Run(part.name, part.test)
	}
	v.configure(t, `{"developerConfiguration":{"useEmulation":true}}`)
	v.nothingLeft(t)
}

// withSample writes what go build -overlay takes: the sample's two folders, and the two lists of
// hypervisors with one more line each.
func withSample(t *testing.T) string {
	t.Helper()
	const module = "\t\"github.com/vmlet/vmlet/hypervisor\"\n"
	folder, replace := t.TempDir(), make(map[string]string)
	for _, list := range []struct{ path, line, imported, sample, own string }{
		{"standard/standard.go", "sample.Sample{}", `"github.com/vmlet/vmlet/hypervisor/sample"`, "sample.go", "sample/sample.go"},
		{"standard/probe/probe.go", "sample.Local{Roots: roots}", `sample "github.com/vmlet/vmlet/hypervisor/sample/probe"`, "probe/probe.go", "sample/probe/probe.go"},
	} {
		path, err := filepath.Abs(filepath.Join("../../hypervisor", list.path))
		must(t, err)
		text, err := os.ReadFile(path)
		must(t, err)
		const before = "\t\temulation.Emulation{},\n"
		if !strings.Contains(string(text), before) || !strings.Contains(string(text), module) {
			t.Fatalf("%s has not the lines beside which the sample's go", path)
		}
		changed := strings.Replace(string(text), before, "\t\t"+list.line+",\n"+before, 1)
		changed = strings.Replace(changed, module, module+"\t"+list.imported+"\n", 1)
		file := filepath.Join(folder, strings.ReplaceAll(list.path, "/", "-"))
		must(t, os.WriteFile(file, []byte(changed), 0o600))
		sample, err := filepath.Abs(filepath.Join("testdata/sample", list.sample))
		must(t, err)
		own, err := filepath.Abs(filepath.Join("../../hypervisor", list.own))
		must(t, err)
		replace[path], replace[own] = file, sample
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	must(t, err)
	file := filepath.Join(folder, "overlay.json")
	must(t, os.WriteFile(file, overlay, 0o600))
	return file
}

// configure sets the KubeVirt object's configuration.
func (v *installed) configure(t *testing.T, configuration string) {
	t.Helper()
	v.kubectl(t, "patch", "kubevirt", "kubevirt", "-n", "vmlet", "--type=json", "-p",
		fmt.Sprintf(`[{"op":"replace","path":"/spec/configuration","value":%s}]`, configuration))
}

// makeSample makes the device on the node, where its driver would.
func (v *installed) makeSample(t *testing.T, name string) {
	t.Helper()
	if out, err := v.InNode(v.ctx, "mknod", "-m", "0666", "/dev/"+name, "c", "1", "3"); err != nil { // as /dev/null
		t.Fatalf("%s%v", out, err)
	}
}

func (v *installed) testWaitsForSample(t *testing.T) {
	v.create(t, machine(t, "sampled", kubevirtv1.RunStrategyAlways, idle))
	v.printed(t, "sampled", "ErrorUnschedulable")
	pod := v.podOf(t, v.vmi(t, "sampled"))
	if got := condition(podConditions(pod), "PodScheduled"); got == nil || !strings.Contains(got.Message, "Insufficient devices.kubevirt.io/sample") {
		t.Errorf("the pod waits, and says %+v, not for which device", got)
	}
	v.makeSample(t, "sample")
	vmi := v.phase(t, "sampled", kubevirtv1.PhaseRunning)
	pod = v.podOf(t, vmi)
	requests := pod.Spec.Containers[0].Resources.Limits
	if _, has := requests["devices.kubevirt.io/sample"]; !has || len(requests) != 1 {
		t.Errorf("the pod requests %v: want sample, and not what no node has", requests)
	}
	if got := v.listed(t)[pod.UID]; got.GetStatus().GetHypervisor() != "sample" || got.GetStatus().GetEffectiveSpec().GetCpu().GetModel() != "max" {
		t.Errorf("the node runs it under %s: %s", got.GetStatus().GetHypervisor(), got)
	}
	node := get(t, v, "", vmi.Status.NodeName, new(corev1.Node))
	if got := node.Labels[contract.LabelHypervisorState+"sample"]; got != "works" {
		t.Errorf("the node's label of sample is %q", got)
	}
}

// podConditions are a pod's, in KubeVirt's type.
func podConditions(pod *corev1.Pod) (all []kubevirtv1.Condition) {
	for _, c := range pod.Status.Conditions {
		all = append(all, kubevirtv1.Condition{Type: string(c.Type), Message: c.Message})
	}
	return all
}

// testTwoHypervisors: VMs under another hypervisor run beside those of the cluster's choice; optional
// devices are requested once some node has them.
func (v *installed) testTwoHypervisors(t *testing.T) {
	v.makeSample(t, "sample-firmware")
	v.eventually(t, func() bool {
		var nodes corev1.NodeList
		must(t, v.api.List(v.ctx, &nodes))
		q := nodes.Items[0].Status.Allocatable["devices.kubevirt.io/sample-firmware"]
		return q.Sign() > 0
	}, func() string { return "the node does not offer sample-firmware" })
	for name, word := range map[string]string{"emulated": "emulation", "best": "auto"} {
		vmi := instance(t, name, idle)
		vmi.Annotations = map[string]string{contract.AnnotationHypervisor: word}
		v.create(t, vmi)
	}
	for name, want := range map[string]string{"emulated": "emulation", "best": "sample"} {
		pod := v.podOf(t, v.phase(t, name, kubevirtv1.PhaseRunning))
		if got := v.listed(t)[pod.UID].GetStatus().GetHypervisor(); got != want {
			t.Errorf("%s runs under %s, want %s", name, got, want)
		}
		_, has := pod.Spec.Containers[0].Resources.Limits["devices.kubevirt.io/sample-firmware"]
		if has != (want == "sample") {
			t.Errorf("%s requests sample-firmware: %v", name, has)
		}
	}
	v.remove(t, instance(t, "emulated", idle), instance(t, "best", idle))
}

// testRefusedBySample: the hypervisor's own word at admission, by the VM's field.
func (v *installed) testRefusedBySample(t *testing.T) {
	vm := machine(t, "enlightened", kubevirtv1.RunStrategyHalted, idle)
	vm.Spec.Template.Spec.Domain.Features = &kubevirtv1.Features{Hyperv: &kubevirtv1.FeatureHyperv{Relaxed: &kubevirtv1.FeatureState{}}}
	err := v.api.Create(v.ctx, vm)
	if err == nil || !strings.Contains(err.Error(), "spec.template.spec.domain.features.hyperv") || !strings.Contains(err.Error(), "sample has no enlightenments") {
		t.Errorf("got %v", err)
	}
}

// testRollback: without the gate, new VMs are what they were before; those that run are left alone.
func (v *installed) testRollback(t *testing.T) {
	before := v.vmi(t, "sampled")
	v.configure(t, `{"hypervisorConfiguration":{"name":"sample"},"developerConfiguration":{"useEmulation":true}}`)
	v.eventually(t, func() bool {
		c := condition(get(t, v, "vmlet", "kubevirt", new(kubevirtv1.KubeVirt)).Status.Conditions, "SettingsIgnored")
		return c != nil && strings.Contains(c.Message, "ConfigurableHypervisor")
	}, func() string { return "the KubeVirt object does not say that a gate is missing" })
	v.create(t, instance(t, "after", idle))
	pod := v.podOf(t, v.phase(t, "after", kubevirtv1.PhaseRunning))
	if got := v.listed(t)[pod.UID].GetStatus().GetHypervisor(); got != "emulation" {
		t.Errorf("without the gate a VM runs under %s", got)
	}
	now := v.phase(t, "sampled", kubevirtv1.PhaseRunning)
	if now.UID != before.UID || v.listed(t)[v.podOf(t, now).UID].GetStatus().GetHypervisor() != "sample" {
		t.Errorf("the VM that ran is another: %s", text(now))
	}
}

// testDedicatedCPUs: under the kubelet's static CPU manager the VMM's threads, by /proc, may run on the
// pod's own CPU alone, which is none of the others'.
func (v *installed) testDedicatedCPUs(t *testing.T) {
	v.kubectl(t, "delete", "vm,vmi", "--all", "-n", guests, "--wait")
	defer v.kubectl(t, "delete", "vm,vmi", "--all", "-n", guests, "--wait")
	vm := machine(t, "dedicated", kubevirtv1.RunStrategyAlways, idle)
	vm.Spec.Template.Spec.Domain.CPU = &kubevirtv1.CPU{DedicatedCPUPlacement: true, Sockets: 1, Cores: 1, Threads: 1}
	vm.Spec.Template.Spec.Domain.Resources = kubevirtv1.ResourceRequirements{}
	v.create(t, vm, instance(t, "shared", idle))
	vmi := v.phase(t, "dedicated", kubevirtv1.PhaseRunning)
	if pod := v.podOf(t, vmi); pod.Status.QOSClass != corev1.PodQOSGuaranteed {
		t.Errorf("the pod is %s", pod.Status.QOSClass)
	}
	own, others := v.allowed(t, vmi), v.allowed(t, v.phase(t, "shared", kubevirtv1.PhaseRunning))
	if len(own) != 1 || len(others) != 1 || maps.Equal(own, others) {
		t.Errorf("threads may run on CPUs %v, those of another VM on %v", own, others)
	}
}

// allowed are the lists of CPUs that the threads of a VM's VMM may run on.
func (v *installed) allowed(t *testing.T, vmi *kubevirtv1.VirtualMachineInstance) map[string]bool {
	t.Helper()
	out, err := v.InNode(v.ctx, "sh", "-c", fmt.Sprintf("cat /proc/%d/task/*/status", v.vmm(t, vmi)))
	must(t, err)
	lists := make(map[string]bool)
	for line := range strings.Lines(out) {
		if list, found := strings.CutPrefix(strings.TrimSpace(line), "Cpus_allowed_list:\t"); found {
			lists[list] = true
		}
	}
	return lists
}

// setHugePagesAside does so on the machine, before a kubelet counts them. There may be no room.
func setHugePagesAside(t *testing.T) {
	t.Helper()
	const file = "/proc/sys/vm/nr_hugepages"
	before, err := os.ReadFile(file)
	must(t, err)
	must(t, os.WriteFile(file, []byte("64"), 0))
	t.Cleanup(func() { _ = os.WriteFile(file, before, 0) })
}

// needHugePages skips what the machine has no room for.
func (v *installed) needHugePages(t *testing.T) {
	t.Helper()
	if q := get(t, v, "", cluster.NodeName, new(corev1.Node)).Status.Allocatable["hugepages-2Mi"]; q.Value() < 64<<20 {
		t.Skipf("the machine gave the node %s of huge pages, and 64 MiB are wanted", q.String())
	}
}

// testHugePages: QEMU maps the guest's memory from the pod's own hugetlbfs.
func (v *installed) testHugePages(t *testing.T) {
	v.needHugePages(t)
	vm := machine(t, "huge", kubevirtv1.RunStrategyAlways, idle)
	vm.Spec.Template.Spec.Domain.Memory.Hugepages = &kubevirtv1.Hugepages{PageSize: "2Mi"}
	v.create(t, vm)
	vmi := v.phase(t, "huge", kubevirtv1.PhaseRunning)
	maps, err := v.InNode(v.ctx, "sh", "-c", fmt.Sprintf("grep -c %s /proc/%d/maps", contract.HugePagesFolder, v.vmm(t, vmi)))
	if err != nil || strings.TrimSpace(maps) == "0" {
		t.Errorf("QEMU maps nothing below %s: %s%v", contract.HugePagesFolder, maps, err)
	}
	v.kubectl(t, "delete", "vm", "huge", "-n", guests, "--wait")
}

// testNUMA: the guest has the NUMA nodes of the CPUs that the kubelet gave its pod, and keeps them when it is
// hibernated and resumed.
func (v *installed) testNUMA(t *testing.T) {
	v.needHugePages(t)
	vm := machine(t, "numa", kubevirtv1.RunStrategyAlways, idle)
	vm.Spec.Template.Spec.Domain.CPU = &kubevirtv1.CPU{
		DedicatedCPUPlacement: true, Sockets: 1, NUMA: &kubevirtv1.NUMA{GuestMappingPassthrough: &kubevirtv1.NUMAGuestMappingPassthrough{}},
	}
	vm.Spec.Template.Spec.Domain.Memory.Hugepages = &kubevirtv1.Hugepages{PageSize: "2Mi"}
	vm.Spec.Template.Spec.Domain.Resources = kubevirtv1.ResourceRequirements{}
	vm.Spec.HibernateStrategy = &kubevirtv1.HibernateStrategy{Mode: kubevirtv1.HibernateSave, StorageClassName: new("local-path")}
	v.create(t, vm)
	v.hasNUMA(t, v.phase(t, "numa", kubevirtv1.PhaseRunning))
	v.strategy(t, "numa", kubevirtv1.RunStrategyHibernate)
	v.printed(t, "numa", kubevirtv1.StatusHibernated)
	v.strategy(t, "numa", kubevirtv1.RunStrategyAlways)
	v.printed(t, "numa", kubevirtv1.StatusRunning)
	v.hasNUMA(t, v.phase(t, "numa", kubevirtv1.PhaseRunning))
	v.kubectl(t, "delete", "vm", "numa", "-n", guests, "--wait")
}

// hasNUMA: the node says that the guest has a NUMA node, and QEMU that it gives it one.
func (v *installed) hasNUMA(t *testing.T, vmi *kubevirtv1.VirtualMachineInstance) {
	t.Helper()
	effective := v.listed(t)[v.podOf(t, vmi).UID].GetStatus().GetEffectiveSpec()
	if nodes := effective.GetNuma().GetNodes(); len(nodes) != 1 || nodes[0].GetCpus() != "0" || nodes[0].GetMemory() != effective.GetMemory().GetSize() {
		t.Errorf("the guest's nodes are %v", nodes)
	}
	args, err := v.InNode(v.ctx, "sh", "-c", fmt.Sprintf("tr '\\0' '\\n' </proc/%d/cmdline", v.vmm(t, vmi)))
	if err != nil || !strings.Contains(args, "node,nodeid=0,cpus=0,memdev=ram0") {
		t.Errorf("QEMU has no node: %s%v", args, err)
	}
}
