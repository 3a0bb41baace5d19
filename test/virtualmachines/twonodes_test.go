package virtualmachines_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/test/cluster"
)

// traveller is the VM that TestTwoNodes has: its disk and its memory can be on either node.
const traveller = "traveller"

// twoNodes is a cluster of two nodes; vmlet's controller and vmlet-api are on the first.
type twoNodes struct {
	*installed
	second *cluster.Node
	boot   string // the guest's
}

// TestTwoNodes takes a VM from node to node, and has the second one cut off and killed.
func TestTwoNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a cluster")
	}
	if err := cluster.Unfit(); err != nil {
		t.Skip(err)
	}
	v := newCluster(t, cluster.Options{Nodes: 2})
	w := &twoNodes{installed: v, second: v.Nodes()[1]}
	must(t, w.second.Cordon(v.ctx))
	v.deploy(t)
	for _, part := range []struct {
		name string
		test func(*testing.T)
	}{
		{"hibernated on a node, resumed on another", w.testResumedElsewhere},
		{"cut off and back", w.testCutOff},
		{"drained", w.testDrained},
		{"killed", w.testKilled},
		{"chaos", w.testChaos},
	} {
		v.part(t, part.name, part.test)
		if t.Failed() { // each begins where the one before ended
			return
		}
	}
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

// testKilled: a VM whose node's power is cut stays Unknown until somebody says by a taint that the
// node is out of service. Then it boots on the other one with its disk, and nothing of it comes back
// with its first node.
func (w *twoNodes) testKilled(t *testing.T) {
	must(t, w.Cordon(w.ctx))
	if err := w.evict(t, w.vmi(t, traveller)); err == nil || !strings.Contains(err.Error(), "TooManyRequests") { // as kubectl vmlet move does
		t.Errorf("an eviction of a VM that is to be saved: %v, want 429", err)
	}
	w.goesOnOn(t, w.second)
	must(t, w.Uncordon(w.ctx))
	first := w.vmi(t, traveller)
	must(t, w.second.Kill())
	w.phase(t, traveller, kubevirtv1.PhaseUnknown)
	w.kubectl(t, "wait", "--for=condition=Ready=Unknown", "node/"+w.second.Name(), "--timeout=24h")
	if now := w.vmi(t, traveller); now.UID != first.UID {
		t.Fatalf("a VM on a dead node was started again: %s", text(now))
	}
	w.kubectl(t, "taint", "node", w.second.Name(), corev1.TaintNodeOutOfService+"=nodeshutdown:NoExecute")
	second := w.another(t, first)
	pod := w.runsOn(t, w.Node)
	w.ask(t, pod, "verify", "nothing was filled")
	w.askAgain(t, pod, "cat /dev/vdb", "on the claim")
	must(t, w.second.Boot(w.ctx))
	w.kubectl(t, "taint", "node", w.second.Name(), corev1.TaintNodeOutOfService+"-")
	must(t, w.RolledOut(w.ctx, "vmlet", "daemonset/vmlet-agent"))
	if now := w.vmi(t, traveller); now.UID != second.UID {
		t.Errorf("the VM's instance is another one after the dead node's boot: %s", text(now))
	}
	w.nothingLeft(t)
}

// runsOn waits until the VM runs on a node, and returns its pod.
func (w *twoNodes) runsOn(t *testing.T, n *cluster.Node) *corev1.Pod {
	t.Helper()
	vmi := w.until(t, traveller, "running on node "+n.Name(), func(vmi *kubevirtv1.VirtualMachineInstance) bool {
		return vmi.Status.Phase == kubevirtv1.PhaseRunning && vmi.Status.NodeName == n.Name()
	})
	return w.podOf(t, vmi)
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
