package virtualmachines_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/test/cluster"
)

// testRestarts: all of vmlet, the kubelet and the API server come and go, a VM goes on in the
// same process, and new ones are started afterwards.
func (v *installed) testRestarts(t *testing.T) {
	v.create(t, machine(t, "steady", kubevirtv1.RunStrategyAlways, idle))
	first := v.phase(t, "steady", kubevirtv1.PhaseRunning)
	vmm := v.vmm(t, first)
	for i, c := range []struct {
		what string
		do   func(*testing.T)
	}{
		{"the kubelet was restarted", func(t *testing.T) { must(t, v.RestartKubelet(v.ctx)) }},
		{"the agent was killed", func(t *testing.T) { v.killAll(t, "vmlet-agent") }},
		{"the agents were rolled", func(t *testing.T) {
			v.kubectl(t, "rollout", "restart", "daemonset/vmlet-agent", "-n", "vmlet")
			must(t, v.RolledOut(v.ctx, "vmlet", "daemonset/vmlet-agent"))
		}},
		{"the leading controller was killed", func(t *testing.T) { v.killLeader(t) }},
		{"both controllers were killed", func(t *testing.T) { v.killAll(t, "vmlet-controller") }},
		{"vmlet-api was killed", func(t *testing.T) { v.killAll(t, "vmlet-api") }},
		{"the API server was away", v.withoutAPIServer},
	} {
		c.do(t)
		name := fmt.Sprintf("after-%d", i)
		v.createAgain(t, machine(t, name, kubevirtv1.RunStrategyAlways, idle))
		v.printed(t, name, kubevirtv1.StatusRunning)
		v.remove(t, machine(t, name, "", idle))
		now := v.phase(t, "steady", kubevirtv1.PhaseRunning)
		if pid := v.vmm(t, now); now.UID != first.UID || pid != vmm {
			t.Errorf("after %s the VM is VMI %s in process %d, want %s in %d", c.what, now.UID, pid, first.UID, vmm)
		}
	}
	v.nothingLeft(t)
}

// createAgain tries until there is somebody who admits the VM.
func (v *installed) createAgain(t *testing.T, vm *kubevirtv1.VirtualMachine) {
	t.Helper()
	var err error
	v.eventually(t, func() bool {
		err = v.api.Create(v.ctx, vm.DeepCopy())
		return err == nil
	}, func() string { return fmt.Sprintf("the VM %s is not taken: %v", vm.Name, err) })
}

// withoutAPIServer has it away until the leading controller gave up.
func (v *installed) withoutAPIServer(t *testing.T) {
	leader := v.leader(t)
	must(t, v.StopComponent(cluster.APIServer))
	v.eventually(t, func() bool { return unix.Kill(leader, 0) != nil },
		func() string { return "the leading controller goes on, though it can't know that it leads" })
	must(t, v.StartComponent(v.ctx, cluster.APIServer))
}

// killLeader kills the leading controller; the other one takes over.
func (v *installed) killLeader(t *testing.T) {
	t.Helper()
	must(t, unix.Kill(v.leader(t), unix.SIGKILL))
}

// leader is the process of the leading controller.
func (v *installed) leader(t *testing.T) int {
	t.Helper()
	var pid int
	v.eventually(t, func() bool {
		lease := get(t, v, "vmlet", "vmlet-controller", new(coordinationv1.Lease))
		pod, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
		pids := v.processes(t, "vmlet-controller", pod)
		if len(pids) == 1 {
			pid = pids[0]
		}
		return len(pids) == 1
	}, func() string { return "no controller leads" })
	return pid
}

// killAll kills one of vmlet's programs in all of its pods, and waits until they are ready
// again.
func (v *installed) killAll(t *testing.T, program string) {
	t.Helper()
	for _, p := range v.podsOf(t, program) {
		for _, pid := range v.processes(t, program, p.Name) {
			must(t, unix.Kill(pid, unix.SIGKILL))
		}
		before := p.Status.ContainerStatuses[0].ContainerID
		v.eventually(t, func() bool {
			now := get(t, v, "vmlet", p.Name, new(corev1.Pod))
			return now.Status.ContainerStatuses[0].ContainerID != before && now.Status.ContainerStatuses[0].Ready
		}, func() string { return "pod " + p.Name + " does not come back after a kill" })
	}
}

// podsOf are those of one of vmlet's programs.
func (v *installed) podsOf(t *testing.T, program string) []corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	must(t, v.api.List(v.ctx, &pods, client.InNamespace("vmlet"), client.MatchingLabels{"app.kubernetes.io/name": program}))
	return pods.Items
}

// signal sends a signal to a process, as the node numbers it.
func (v *installed) signal(pid int64, signal string) error {
	_, err := v.InNode(v.ctx, "kill", "-"+signal, fmt.Sprint(pid))
	return err
}

// runs: there is a process of that number on the node.
func (v *installed) runs(pid int64) bool { return v.signal(pid, "0") == nil }

// processes are those of a program in a pod, as this machine numbers them: pods' names are in
// their environment.
func (v *installed) processes(t *testing.T, program, pod string) (pids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	must(t, err)
	for _, dir := range all {
		name, err := os.ReadFile(dir + "/comm")
		if err != nil || !strings.HasPrefix(program, strings.TrimSpace(string(name))) {
			continue
		}
		environment, err := os.ReadFile(dir + "/environ")
		if err != nil || !slices.ContainsFunc(bytes.Split(environment, []byte{0}), func(line []byte) bool {
			return string(line) == "HOSTNAME="+pod
		}) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		must(t, err)
		pids = append(pids, pid)
	}
	return pids
}
