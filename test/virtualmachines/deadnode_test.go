package virtualmachines_test

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/test/cluster"
)

// deadNodePart shows on the only node what TestTwoNodes shows on another one: it runs where everything does, and where it
// is named.
const deadNodePart = "dead node"

// testDeadNode: of a VM whose node is silent nobody says that it ended, until somebody who
// must know says so by a taint; then it starts again elsewhere, and what is left of it on the
// node, should that come back, ends before.
func (v *installed) testDeadNode(t *testing.T) {
	v.elsewhere(t)
	v.createAgain(t, machine(t, "silent", kubevirtv1.RunStrategyAlways, idle))
	first := v.phase(t, "silent", kubevirtv1.PhaseRunning)
	vmm := v.vmm(t, first)
	v.printed(t, "silent", kubevirtv1.StatusRunning)
	must(t, v.StopComponent(cluster.Kubelet))
	for _, p := range v.podsOf(t, "vmlet-agent") {
		for _, pid := range v.processes(t, "vmlet-agent", p.Name) {
			must(t, unix.Kill(pid, unix.SIGKILL))
		}
	}
	unknown := v.phase(t, "silent", kubevirtv1.PhaseUnknown)
	if c := condition(unknown.Status.Conditions, kubevirtv1.ConditionReady); c == nil || c.Status != "False" || c.Reason != "NodeUnresponsive" ||
		!strings.Contains(c.Message, cluster.NodeName) || !strings.Contains(c.Message, corev1.TaintNodeOutOfService) {
		t.Errorf("of a silent node the VMI says %+v, want which one, and what to do", c)
	}
	v.printed(t, "silent", kubevirtv1.StatusUnknown)
	v.kubectl(t, "wait", "--for=condition=Ready=Unknown", "node/"+cluster.NodeName, "--timeout=24h")
	if now := v.vmi(t, "silent"); now.UID != first.UID {
		t.Fatalf("a VM on a silent node was started again: %s", text(now))
	}
	v.kubectl(t, "taint", "node", cluster.NodeName, corev1.TaintNodeOutOfService+"=nodeshutdown:NoExecute")
	second := v.until(t, "silent", "another one", func(vmi *kubevirtv1.VirtualMachineInstance) bool { return vmi.UID != first.UID })
	must(t, v.StartComponent(v.ctx, cluster.Kubelet))
	v.eventually(t, func() bool { return !v.runs(vmm) }, func() string { return "the VMM of a pod that is gone goes on after its kubelet came back" })
	v.kubectl(t, "taint", "node", cluster.NodeName, corev1.TaintNodeOutOfService+"-")
	v.until(t, "silent", "running", func(vmi *kubevirtv1.VirtualMachineInstance) bool {
		return vmi.UID == second.UID && vmi.Status.Phase == kubevirtv1.PhaseRunning
	})
	v.nothingLeft(t)
}

// elsewhere has vmlet's controller and vmlet-api stay as they are when the only node is
// silent, as if they ran on another one.
func (v *installed) elsewhere(t *testing.T) {
	t.Helper()
	for _, name := range []string{"vmlet-controller", "vmlet-api"} {
		v.kubectl(t, "patch", "deployment", name, "-n", "vmlet", "--type=json",
			`--patch=[{"op": "replace", "path": "/spec/template/spec/tolerations", "value": [{"operator": "Exists"}]}]`)
	}
	v.kubectl(t, "patch", "service", "vmlet-api", "-n", "vmlet", `--patch={"spec": {"publishNotReadyAddresses": true}}`)
	for _, name := range []string{"vmlet-controller", "vmlet-api"} {
		must(t, v.RolledOut(v.ctx, "vmlet", "deployment/"+name))
	}
}
