package virtualmachines_test

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/test/cluster"
)

// lostSightPart takes two minutes: it runs where everything does, and where it is named.
const lostSightPart = "lost sight"

// testLostSight: containerd comes back and can't load the task of a VM's container, so that the
// kubelet says that the container has terminated. Its VM runs, and is not started a second time,
// whether or not there is an agent to say so; once it has ended it is.
func (v *installed) testLostSight(t *testing.T) {
	v.create(t, machine(t, "unseen", kubevirtv1.RunStrategyAlways, idle))
	first := v.phase(t, "unseen", kubevirtv1.PhaseRunning)
	vmm := v.vmm(t, first)
	back := v.agentsAway(t)
	again := v.loseSight(t, first, vmm)
	v.unconfirmed(t, first, "may run until vmlet's agent on node "+cluster.NodeName+" confirms")
	back()
	v.unconfirmed(t, first, "vmlet's agent on node "+cluster.NodeName+" says that the VM, or a process of the container, runs")
	if now := v.vmm(t, first); now != vmm {
		t.Errorf("the VM's process was %d, and is %d", vmm, now)
	}
	must(t, v.signal(vmm, "KILL"))
	again()
	v.another(t, first)
	v.nothingLeft(t)
}

// unconfirmed waits until an instance says that its end is not confirmed, and fails if another has
// taken its place.
func (v *installed) unconfirmed(t *testing.T, first *kubevirtv1.VirtualMachineInstance, why string) {
	t.Helper()
	v.until(t, first.Name, "Unknown, as "+why, func(now *kubevirtv1.VirtualMachineInstance) bool {
		if now.UID != first.UID || now.Status.Phase == kubevirtv1.PhaseFailed {
			t.Fatalf("a VM that runs counts as ended: %s", text(now))
		}
		c := condition(now.Status.Conditions, kubevirtv1.ConditionReady)
		return now.Status.Phase == kubevirtv1.PhaseUnknown && c != nil && c.Status == "False" && c.Reason == "EndUnconfirmed" &&
			strings.Contains(c.Message, "the kubelet of node "+cluster.NodeName+" has lost sight of the VM's container") && strings.Contains(c.Message, why)
	})
}

// loseSight has containerd come back while it can't open the log of a VM's container, so that it does not
// load the task, and then its shim hang, so that nobody can end the container. It returns when the kubelet,
// which stands still meanwhile, says that the container has terminated; again takes that back.
func (v *installed) loseSight(t *testing.T, vmi *kubevirtv1.VirtualMachineInstance, vmm int64) (again func()) {
	t.Helper()
	pod := v.podOf(t, vmi)
	logs := fmt.Sprintf("/var/log/pods/%s_%s_%s", pod.Namespace, pod.Name, pod.UID)
	kubelet := v.component(t, cluster.Kubelet)
	shim := v.parent(t, v.parent(t, vmm)) // of vmlet's
	must(t, v.signal(kubelet, "STOP"))
	t.Cleanup(func() { // else the cluster would not end
		_ = v.signal(kubelet, "CONT")
		_ = v.signal(shim, "CONT")
	})
	must(t, v.StopComponent(cluster.Containerd))
	must(t, os.RemoveAll(v.Path(logs)))
	must(t, os.WriteFile(v.Path(logs), nil, 0o644)) // a missing folder would be made
	must(t, v.StartComponent(v.ctx, cluster.Containerd))
	must(t, v.signal(shim, "STOP"))
	must(t, v.signal(kubelet, "CONT"))
	v.eventually(t, func() bool {
		pod = v.podOf(t, vmi)
		end := pod.Status.ContainerStatuses[0].State.Terminated
		return end != nil && end.Reason == "ContainerStatusUnknown"
	}, func() string {
		return fmt.Sprintf("of a container that its runtime has not loaded the kubelet says %+v", pod.Status.ContainerStatuses)
	})
	return func() {
		must(t, os.Remove(v.Path(logs)))
		must(t, v.signal(shim, "CONT"))
	}
}

// component is a component's process, as the node numbers it.
func (v *installed) component(t *testing.T, name string) int64 {
	t.Helper()
	out, err := v.InNode(v.ctx, "pidof", name)
	must(t, err)
	pid, err := strconv.ParseInt(strings.TrimSpace(out), 10, 64)
	must(t, err)
	return pid
}

var parents = regexp.MustCompile(`(?m)^PPid:\s+(\d+)$`)

// parent is a process' parent, as the node numbers them.
func (v *installed) parent(t *testing.T, pid int64) int64 {
	t.Helper()
	status, err := os.ReadFile(v.Path(fmt.Sprintf("/proc/%d/status", pid)))
	must(t, err)
	found := parents.FindSubmatch(status)
	if found == nil {
		t.Fatalf("process %d has no parent:\n%s", pid, status)
	}
	parent, err := strconv.ParseInt(string(found[1]), 10, 64)
	must(t, err)
	return parent
}

// agentsAway has no node run an agent, as while they are replaced, until back is called.
func (v *installed) agentsAway(t *testing.T) (back func()) {
	t.Helper()
	selector := func(value string) {
		v.kubectl(t, "patch", "daemonset", "vmlet-agent", "-n", "vmlet", "--type=merge",
			`--patch={"spec": {"template": {"spec": {"nodeSelector": {"vmlet.test/agents": `+value+`}}}}}`)
	}
	selector(`"away"`)
	v.eventually(t, func() bool { return len(v.podsOf(t, "vmlet-agent")) == 0 }, func() string { return "the agent does not go" })
	return func() {
		selector("null")
		must(t, v.RolledOut(v.ctx, "vmlet", "daemonset/vmlet-agent"))
	}
}
