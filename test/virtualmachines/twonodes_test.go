package virtualmachines_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/test/chtest"
	"github.com/vmlet/vmlet/test/cluster"
	"github.com/vmlet/vmlet/test/everything"
	"github.com/vmlet/vmlet/test/suites"
)

// traveller is the VM that TestTwoNodes has: its disk and its memory can be on either node.
const traveller = "traveller"

// twoNodes is a cluster of two nodes; vmlet's controller and vmlet-api are on the first.
type twoNodes struct {
	*installed
	second *cluster.Node
	boot   string // the guest's
	cloud  bool   // nodes have cloud-hypervisor, too, and KVM for it
}

// TestTwoNodes takes a VM from node to node, and has the second one cut off and killed.
func TestTwoNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a cluster")
	}
	if err := cluster.Unfit(); err != nil {
		t.Skip(err)
	}
	var cloud []string
	if _, err := os.Stat("/dev/kvm"); err == nil {
		cloud = []string{"-cloud-hypervisor", cloudHypervisor(t)}
	}
	v := newCluster(t, cluster.Options{Nodes: 2}, cloud...)
	w := &twoNodes{installed: v, second: v.Nodes()[1], cloud: cloud != nil}
	must(t, w.second.Cordon(v.ctx))
	v.deploy(t)
	drained := w.testDrained
	if everything.Wanted() {
		drained = w.testDrainedByStrategy
	}
	type part struct {
		name string
		test func(*testing.T)
	}
	var long []part
	for _, p := range []part{{nodeDeletedPart, w.testNodeDeletedForLong}, {nodeGonePart, w.testNodeGone}} {
		if everything.Wanted() || named(p.name) {
			long = append(long, p)
		}
	}
	for _, part := range slices.Concat([]part{
		{"hibernated on a node, resumed on another", w.testResumedElsewhere},
		{"cut off and back", w.testCutOff},
		{"drained", drained},
		{"pool spread", w.testPoolSpread},
		{"Node deleted and back", w.testNodeDeleted},
		{"removed by force", w.testRemovedByForce},
	}, long, []part{
		{"killed", w.testKilled},
		{"chaos", w.testChaos},
	}) {
		v.part(t, part.name, part.test)
		if t.Failed() { // each begins where the one before ended
			return
		}
	}
}

// cloudHypervisor is the program for the image, or, where there is none, the stand-in.
func cloudHypervisor(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("cloud-hypervisor"); err == nil {
		return path
	}
	path, err := chtest.Build(t.Context(), t.TempDir())
	must(t, err)
	return path
}

// testResumedElsewhere: a guest that was hibernated on the first node goes on on the second.
func (w *twoNodes) testResumedElsewhere(t *testing.T) {
	must(t, w.Apply(w.ctx, sleeping(traveller, "hibernateStrategy: {mode: Save, storageClassName: loop}", "evictionStrategy: Hibernate")+
		dynamic(traveller, "loop", "Block", "ReadWriteOnce", "64Mi")))
	w.boot = w.remember(t, traveller, w.runsOn(t, w.Node))
	w.strategy(t, traveller, kubevirtv1.RunStrategyHibernate)
	w.asleep(t, w.printed(t, traveller, kubevirtv1.StatusHibernated))
	must(t, w.second.Uncordon(w.ctx))
	must(t, w.Cordon(w.ctx))
	w.strategy(t, traveller, kubevirtv1.RunStrategyAlways)
	w.goesOnOn(t, w.second)
	must(t, w.Uncordon(w.ctx))
}

// testCutOff: a node that is cut off from all others runs its guest on. Nobody starts it a second
// time, and it is the same process when the node is back.
func (w *twoNodes) testCutOff(t *testing.T) {
	first := w.vmi(t, traveller)
	vmm := w.vmm(t, first)
	must(t, w.second.Cut(w.ctx, cluster.ControlPlane|cluster.OtherNodes))
	w.phase(t, traveller, kubevirtv1.PhaseUnknown)
	w.kubectl(t, "wait", "--for=condition=Ready=Unknown", "node/"+w.second.Name(), "--timeout=24h")
	if now := w.vmi(t, traveller); now.UID != first.UID {
		t.Fatalf("a VM whose node is cut off was started again: %s", text(now))
	}
	must(t, w.second.Mend(w.ctx))
	now := w.phase(t, traveller, kubevirtv1.PhaseRunning)
	if now.UID != first.UID {
		t.Errorf("the VM's instance was %s, and is %s after its node is back", first.UID, now.UID)
	}
	if now := w.vmm(t, now); now != vmm {
		t.Errorf("the VM's process was %d, and is %d after its node is back", vmm, now)
	}
	w.kubectl(t, "wait", "--for=condition=Ready", "node/"+w.second.Name(), "--timeout=24h")
}

// testDrained: kubectl drain has the guest go on on the first node.
func (w *twoNodes) testDrained(t *testing.T) {
	must(t, w.second.Drain(w.ctx))
	w.goesOnOn(t, w.Node)
	must(t, w.second.Uncordon(w.ctx))
}

// testDrainedByStrategy: kubectl drain has guests go on on the first node that are to be saved, and shuts down those that may
// be. It waits for those that it must not shut down until somebody has taken them away, and leaves the VM whose
// claim is on the node without a node until that is there again.
func (w *twoNodes) testDrainedByStrategy(t *testing.T) {
	must(t, w.Cordon(w.ctx))
	before := make(map[string]*kubevirtv1.VirtualMachineInstance)
	for name, strategy := range map[string]kubevirtv1.EvictionStrategy{
		"none": kubevirtv1.EvictionNone, "if-possible": kubevirtv1.EvictionLiveMigrateIfPossible,
		"live": kubevirtv1.EvictionLiveMigrate, "external": kubevirtv1.EvictionExternal,
	} {
		vm := machine(t, name, kubevirtv1.RunStrategyAlways, idle)
		vm.Spec.Template.Spec.EvictionStrategy = &strategy
		w.create(t, vm)
		before[name] = nil
	}
	must(t, w.Apply(w.ctx, sleeper("pinned", onLocalPath, "evictionStrategy: Hibernate")))
	for name := range before {
		before[name] = w.on(t, name, w.second)
	}
	boot := w.remember(t, "pinned", w.podOf(t, w.on(t, "pinned", w.second)))
	must(t, w.Uncordon(w.ctx))

	ctx, cancel := suites.Wait(w.ctx, t, 2*patience)
	defer cancel()
	drained := make(chan error, 1)
	go func() { drained <- w.second.Drain(ctx) }()
	w.goesOnOn(t, w.Node)
	for _, name := range []string{"none", "if-possible"} {
		if now := w.another(t, before[name]); now.Status.NodeName != w.Name() {
			t.Errorf("VM %s was evicted from node %s, and is on %s", name, w.second.Name(), now.Status.NodeName)
		}
	}
	w.until(t, "external", "noted as one that leaves its node", func(vmi *kubevirtv1.VirtualMachineInstance) bool {
		return vmi.Status.EvacuationNodeName == w.second.Name()
	})
	w.until(t, "pinned", "saved, and without a node that has its claim", func(vmi *kubevirtv1.VirtualMachineInstance) bool {
		c := condition(vmi.Status.Conditions, string(corev1.PodScheduled))
		return vmi.Spec.RestoreFrom != nil && c != nil && c.Status == "False" && strings.Contains(c.Message, "node affinity")
	})
	select {
	case err := <-drained:
		t.Errorf("the drain ended before the VMs were gone that it must not shut down: %v", err)
		drained <- err
	default:
	}
	for _, name := range []string{"live", "external"} {
		if now := w.vmi(t, name); now.UID != before[name].UID || now.Status.Phase != kubevirtv1.PhaseRunning {
			t.Errorf("a drain has not left VM %s alone: %s", name, text(now))
		}
		w.remove(t, machine(t, name, "", idle))
	}
	if err := <-drained; err != nil {
		t.Errorf("the drain: %v", err)
	}
	must(t, w.second.Uncordon(w.ctx))
	pod := w.podOf(t, w.on(t, "pinned", w.second))
	w.askAgain(t, pod, "cat /proc/sys/kernel/random/boot_id", boot)
	w.askAgain(t, pod, "verify", "verified ")
	w.askAgain(t, pod, "cat /dev/vdb", "on the claim")
	for name := range before {
		w.remove(t, machine(t, name, "", idle))
	}
	w.kubectl(t, "delete", "vm/pinned", "pvc/pinned", "-n", guests)
}

// testKilled: a VM whose node's power is cut stays Unknown until somebody says by a taint that the
// node is out of service. Then it boots on the other one with its disk, and nothing of it comes back
// with its first node. So does a VM of a pool.
func (w *twoNodes) testKilled(t *testing.T) {
	must(t, w.Cordon(w.ctx))
	w.move(t, traveller)
	w.goesOnOn(t, w.second)
	must(t, w.Uncordon(w.ctx))
	first, crowded := w.vmi(t, traveller), w.crowdInstances(t)
	must(t, w.second.Kill())
	w.phase(t, traveller, kubevirtv1.PhaseUnknown)
	w.kubectl(t, "wait", "--for=condition=Ready=Unknown", "node/"+w.second.Name(), "--timeout=24h")
	if now := w.vmi(t, traveller); now.UID != first.UID {
		t.Fatalf("a VM on a dead node was started again: %s", text(now))
	}
	w.poolOnDeadNode(t, crowded)
	w.kubectl(t, "taint", "node", w.second.Name(), corev1.TaintNodeOutOfService+"=nodeshutdown:NoExecute")
	second := w.another(t, first)
	pod := w.runsOn(t, w.Node)
	w.ask(t, pod, "verify", "nothing was filled")
	w.askAgain(t, pod, "cat /dev/vdb", "on the claim")
	w.poolAfterDeadNode(t, crowded)
	crowded = w.crowdInstances(t)
	must(t, w.second.Boot(w.ctx))
	w.kubectl(t, "taint", "node", w.second.Name(), corev1.TaintNodeOutOfService+"-")
	must(t, w.RolledOut(w.ctx, "vmlet", "daemonset/vmlet-agent"))
	if now := w.vmi(t, traveller); now.UID != second.UID {
		t.Errorf("the VM's instance is another one after the dead node's boot: %s", text(now))
	}
	if now := w.crowdInstances(t); !maps.Equal(now, crowded) {
		t.Errorf("the pool's instances were %v, and are %v after the dead node's boot", crowded, now)
	}
	w.kubectl(t, "delete", "vmpool", crowd, "-n", guests)
	w.nothingLeft(t)
}

// move has a VM leave its node by kubectl vmlet move, which returns when it runs on another.
func (w *twoNodes) move(t *testing.T, name string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "kubectl-vmlet")
	must(t, cluster.BuildProgram(w.ctx, program, "github.com/vmlet/vmlet/cmd/kubectl-vmlet"))
	cmd := exec.CommandContext(w.ctx, program, "--kubeconfig", w.Kubeconfig(), "--namespace", guests, "move", name, "--wait")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "VM "+name+" runs.") {
		t.Fatalf("kubectl vmlet move: %v\n%s", err, out)
	}
}

// runsOn waits until the VM runs on a node, and returns its pod.
func (w *twoNodes) runsOn(t *testing.T, n *cluster.Node) *corev1.Pod {
	t.Helper()
	return w.podOf(t, w.on(t, traveller, n))
}

// goesOnOn waits until the guest has gone on on a node, with its memory and its disks.
func (w *twoNodes) goesOnOn(t *testing.T, n *cluster.Node) {
	t.Helper()
	w.printed(t, traveller, kubevirtv1.StatusRunning)
	pod := w.runsOn(t, n)
	w.askAgain(t, pod, "cat /proc/sys/kernel/random/boot_id", w.boot)
	w.askAgain(t, pod, "verify", "verified ")
	w.askAgain(t, pod, "cat /dev/vdb", "on the claim")
}

// on waits until a VM runs on a node.
func (w *twoNodes) on(t *testing.T, name string, n *cluster.Node) *kubevirtv1.VirtualMachineInstance {
	t.Helper()
	return w.until(t, name, "running on node "+n.Name(), func(vmi *kubevirtv1.VirtualMachineInstance) bool {
		return vmi.Status.Phase == kubevirtv1.PhaseRunning && vmi.Status.NodeName == n.Name()
	})
}
