package virtualmachines_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	w.endsAdrift(t, nil)
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
	w.endsAdrift(t, nil)
}

// nodeGonePart waits for minutes, as vmlet does.
const nodeGonePart = "killed and its Node deleted"

// testNodeGone: a VM on a dead node starts on the other one when the dead one's Node is deleted, and nothing of it
// comes back with the machine, which makes itself a Node again.
func (w *twoNodes) testNodeGone(t *testing.T) {
	first := w.startAdrift(t)
	must(t, w.second.Kill())
	w.phase(t, adrift, kubevirtv1.PhaseUnknown)
	if now := w.vmi(t, adrift); now.UID != first.UID {
		t.Fatalf("a VM on a dead node was started again: %s", text(now))
	}
	w.deleteNode(t)
	second := w.another(t, first)
	if second.Status.NodeName != w.Name() {
		t.Errorf("the VM is on node %q, want %s", second.Status.NodeName, w.Name())
	}
	must(t, w.second.Boot(w.ctx))
	w.endsAdrift(t, second)
}

// testRemovedByForce: who may delete Nodes removes pods and instances of a VM with their finalizers, which keep them
// while it may run. It is not started a second time while its guest runs, and is when that has ended.
func (w *twoNodes) testRemovedByForce(t *testing.T) {
	must(t, w.second.Cordon(w.ctx))
	must(t, w.Cordon(w.ctx))
	w.create(t, machine(t, adrift, kubevirtv1.RunStrategyAlways, idle))
	unbound := w.until(t, adrift, "waiting for a node", func(vmi *kubevirtv1.VirtualMachineInstance) bool { return w.podOf(t, vmi) != nil })
	w.kubectl(t, "delete", "pod", "-n", guests, w.podOf(t, unbound).Name, "--force") // which no kubelet has
	must(t, w.second.Uncordon(w.ctx))
	first := w.until(t, adrift, "another one on "+w.second.Name(), func(vmi *kubevirtv1.VirtualMachineInstance) bool {
		return vmi.UID != unbound.UID && vmi.Status.Phase == kubevirtv1.PhaseRunning
	})

	vmm := w.vmm(t, first)
	must(t, w.second.StopComponent(cluster.Kubelet)) // else it would end the guest with its pod
	w.removed(t, w.podOf(t, first))
	w.until(t, adrift, "one whose pod is gone, and whose agent says that it runs", func(now *kubevirtv1.VirtualMachineInstance) bool {
		if now.UID != first.UID || now.Status.Phase == kubevirtv1.PhaseFailed {
			t.Fatalf("a VM that runs counts as ended: %s", text(now))
		}
		c := condition(now.Status.Conditions, kubevirtv1.ConditionReady)
		return c != nil && c.Status == "False" && c.Reason == "PodNotExists"
	})
	if !w.runsOnSecond(vmm) {
		t.Errorf("the VM's process %d has ended without its kubelet", vmm)
	}
	must(t, w.second.StartComponent(w.ctx, cluster.Kubelet))
	second := w.another(t, first)
	if w.runsOnSecond(vmm) {
		t.Errorf("process %d of the pod that is gone goes on, and another one has been started", vmm)
	}

	vmm = w.vmm(t, second)
	w.removed(t, second.DeepCopy())
	third := w.another(t, second)
	if w.runsOnSecond(vmm) {
		t.Errorf("process %d of the instance that is gone goes on, and another one has been started", vmm)
	}
	must(t, w.Uncordon(w.ctx))
	w.endsAdrift(t, third)
}

// removed has the API server forget an object, whatever holds it.
func (w *twoNodes) removed(t *testing.T, o client.Object) {
	t.Helper()
	key, uid := client.ObjectKeyFromObject(o), o.GetUID()
	w.eventually(t, func() bool {
		if err := w.api.Get(w.ctx, key, o); apierrors.IsNotFound(err) || o.GetUID() != uid {
			return true
		}
		o.SetFinalizers(nil)
		if err := w.api.Update(w.ctx, o); err == nil { // else somebody has changed it
			_ = w.api.Delete(w.ctx, o, client.GracePeriodSeconds(0), client.Preconditions{UID: &uid})
		}
		return false
	}, func() string { return "it is still there: " + text(o) })
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

// endsAdrift deletes the VM, which is to be the instance that it was before; nil: any.
func (w *twoNodes) endsAdrift(t *testing.T, before *kubevirtv1.VirtualMachineInstance) {
	t.Helper()
	must(t, w.RolledOut(w.ctx, "vmlet", "daemonset/vmlet-agent"))
	if now := w.vmi(t, adrift); before != nil && (now == nil || now.UID != before.UID) {
		t.Errorf("the VM's instance was %s, and is another one: %s", before.UID, text(now))
	}
	w.remove(t, machine(t, adrift, "", idle))
	w.noMachine(t, adrift)
}

func (w *twoNodes) deleteNode(t *testing.T) {
	t.Helper()
	w.kubectl(t, "delete", "node", w.second.Name(), "--wait=true")
}
