package virtualmachines_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instance/view"
	"github.com/vmlet/vmlet/test/cluster"
)

// adrift is a VM whose Node object is deleted. It has no claims: Kubernetes takes six minutes to detach those of
// a node that is not there.
const adrift = "adrift"

// testNodeDeleted: somebody deletes the Node object of a machine that runs. Its guest runs on, nobody starts it a
// second time, and it is the same process when the kubelet has made the Node again.
func (w *twoNodes) testNodeDeleted(t *testing.T) {
	first := w.startAdrift(t)
	vmm := w.vmm(t, first)
	must(t, w.StopComponent(cluster.ControllerManager)) // it would delete the node's pods 40 s later, and the kubelet end them
	w.deleteNode(t)
	w.kubectl(t, "delete", "csinode", w.second.Name()) // as that would
	must(t, w.second.RestartKubelet(w.ctx))
	w.kubectl(t, "wait", "--for=condition=Ready", "node/"+w.second.Name(), "--timeout=24h")
	must(t, w.StartComponent(w.ctx, cluster.ControllerManager))
	w.until(t, adrift, "running on a Node that vmlet's agent has made its own", func(vmi *kubevirtv1.VirtualMachineInstance) bool {
		node := get(t, w.installed, "", w.second.Name(), new(corev1.Node))
		return node != nil && node.Labels["kubevirt.io/schedulable"] == "true" && vmi.Status.Phase == kubevirtv1.PhaseRunning
	})
	now := w.vmi(t, adrift)
	if now.UID != first.UID {
		t.Fatalf("a VM whose Node was deleted and came back was started again: %s", text(now))
	}
	if now := w.vmm(t, now); now != vmm {
		t.Errorf("the VM's process was %d, and is %d after its Node is back", vmm, now)
	}
	w.endAdrift(t)
}

// nodeDeletedPart waits for minutes, as Kubernetes and vmlet do.
const nodeDeletedPart = "node deleted without its kubelet"

// testNodeDeletedForLong: the kubelet is away, too, so that Kubernetes deletes the node's pods, the agent's among
// them, and guest and agent run on. The VM starts on the other node when the kubelet is back, and has ended it.
func (w *twoNodes) testNodeDeletedForLong(t *testing.T) {
	first := w.startAdrift(t)
	pod, vmm := w.podOf(t, first), w.vmm(t, first)
	must(t, w.second.StopComponent(cluster.Kubelet))
	w.deleteNode(t)
	w.eventually(t, func() bool {
		return w.podOf(t, first).DeletionTimestamp != nil && w.kubectl(t, "get", "pods", "-n", "vmlet", "-o", "name", "--field-selector=spec.nodeName="+w.second.Name()) == ""
	}, func() string { return "Kubernetes does not delete the pods of a node that is not there" })
	time.Sleep(view.HeardPatience + 15*time.Second) // for so long it would wait for an agent that it does not hear
	if now := w.vmi(t, adrift); now == nil || now.UID != first.UID || now.Status.Phase != kubevirtv1.PhaseRunning {
		t.Errorf("a VM whose agent reports that it runs is %s after its Node was deleted", text(now))
	}
	if !w.runsOnSecond(vmm) {
		t.Errorf("the VM's process %d has ended without its kubelet", vmm)
	}
	must(t, w.second.StartComponent(w.ctx, cluster.Kubelet))
	w.kubectl(t, "wait", "--for=condition=Ready", "node/"+w.second.Name(), "--timeout=24h")
	w.another(t, first)
	if w.runsOnSecond(vmm) {
		t.Errorf("process %d of the VM's pod %s goes on, and another one has been started", vmm, pod.Name)
	}
	w.endAdrift(t)
}

// startAdrift has the VM run on the second node.
func (w *twoNodes) startAdrift(t *testing.T) *kubevirtv1.VirtualMachineInstance {
	t.Helper()
	must(t, w.second.Uncordon(w.ctx))
	must(t, w.Cordon(w.ctx))
	w.create(t, machine(t, adrift, kubevirtv1.RunStrategyAlways, idle))
	vmi := w.on(t, adrift, w.second)
	must(t, w.Uncordon(w.ctx))
	return vmi
}

// runsOnSecond: there is a process of that number on the second node.
func (w *twoNodes) runsOnSecond(pid int64) bool {
	_, err := w.second.InNode(w.ctx, "kill", "-0", fmt.Sprint(pid))
	return err == nil
}

func (w *twoNodes) endAdrift(t *testing.T) {
	t.Helper()
	w.remove(t, machine(t, adrift, "", idle))
	w.noMachine(t, adrift)
	must(t, w.RolledOut(w.ctx, "vmlet", "daemonset/vmlet-agent"))
}

func (w *twoNodes) deleteNode(t *testing.T) {
	t.Helper()
	w.kubectl(t, "delete", "node", w.second.Name(), "--wait=true")
}
