package virtualmachines_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/test/cluster"
	"github.com/vmlet/vmlet/test/suites"
)

// phaseIs is a phase of the hibernation, or a later one.
func phaseIs(phase string) step {
	order := []string{
		kubevirtv1.HibernationInitial, kubevirtv1.HibernationPVCCreate, kubevirtv1.HibernationReadyToHotPlug,
		kubevirtv1.HibernationHotPlugFinished, kubevirtv1.HibernationInProgress, kubevirtv1.HibernationCompleted,
	}
	return step{phase, func(t *testing.T, w *walk) bool {
		h := w.vm(t, w.name).Status.HibernationStatus
		return h != nil && slices.Index(order, h.Phase) >= slices.Index(order, phase)
	}}
}

func resumeIs(phase string) step {
	return step{"resume " + phase, func(t *testing.T, w *walk) bool {
		r := w.vm(t, w.name).Status.ResumeStatus
		return r != nil && (r.Phase == phase || r.Phase == kubevirtv1.ResumeCompleted || r.Phase == kubevirtv1.ResumeCleaned)
	}}
}

// imageHas: a directory that was not there before has a file.
func imageHas(name string) step {
	return step{name + " written", func(t *testing.T, w *walk) bool {
		return slices.ContainsFunc(w.images(t), func(dir string) bool { return !slices.Contains(w.before, dir) && has(dir, name) })
	}}
}

// imageUsed: the image that was there is marked, or gone.
func imageUsed() step {
	return step{"image used", func(t *testing.T, w *walk) bool { return len(w.restorable(t)) == 0 }}
}

func vmmStarts() step {
	return step{"VMM with the disk", func(t *testing.T, w *walk) bool { return len(w.vmms(t)) > 0 }}
}

func noVMI() step {
	return step{"VMI gone", func(t *testing.T, w *walk) bool { return w.vmi(t, w.name) == nil }}
}

func attachmentRuns() step {
	return step{"attachment pod runs", func(t *testing.T, w *walk) bool {
		return slices.ContainsFunc(w.attachments(t), func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	}}
}

// attachments are the pods through which a claim is attached to the VM's.
func (w *walk) attachments(t *testing.T) (found []corev1.Pod) {
	t.Helper()
	var all corev1.PodList
	must(t, w.api.List(w.ctx, &all, client.InNamespace(guests), client.HasLabels{contract.LabelAttachedTo}))
	for _, p := range all.Items {
		if p.Annotations[contract.AnnotationDomain] == w.name {
			found = append(found, p)
		}
	}
	return found
}

// kill kills processes that may have ended.
func kill(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			t.Fatal(err)
		}
	}
}

func killVMM(t *testing.T, w *walk) {
	pids := w.vmms(t)
	kill(t, pids...)
	w.killed = append(w.killed, pids...)
	t.Logf("killed VMM %v", pids)
}

func killShim(t *testing.T, w *walk) {
	vmms, pids := w.vmms(t), w.shims(t)
	kill(t, pids...)
	w.killed = append(w.killed, vmms...)
	t.Logf("killed shim %v", pids)
}

func killAgentAndShim(t *testing.T, w *walk) {
	kill(t, w.programs["vmlet-agent"]...)
	killShim(t, w)
	w.comeBack(t, "vmlet-agent")
}

func killLeading(t *testing.T, w *walk) {
	kill(t, w.leading)
	w.comeBack(t, "vmlet-controller")
}

func killProgram(programs ...string) func(*testing.T, *walk) {
	return func(t *testing.T, w *walk) {
		for _, p := range programs {
			kill(t, w.programs[p]...)
		}
		w.comeBack(t, programs...)
	}
}

// comeBack waits until programs that were killed run again, in other pods: the kubelet would wait
// before it starts the same one once more.
func (w *walk) comeBack(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		w.kubectl(t, "delete", "pods", "-n", "vmlet", "-l", "app.kubernetes.io/name="+p, "--now", "--timeout=24h")
		workload := "deployment/" + p
		if p == "vmlet-agent" {
			workload = "daemonset/" + p
		}
		must(t, w.RolledOut(w.ctx, "vmlet", workload))
	}
}

func killAttachment(t *testing.T, w *walk) {
	for _, p := range w.attachments(t) {
		pids := w.processes(t, "vmlet-shim", p.Name)
		kill(t, pids...)
		t.Logf("killed %v of pod %s", pids, p.Name)
	}
}

func deleteAttachment(t *testing.T, w *walk) {
	for _, p := range w.attachments(t) {
		must(t, client.IgnoreNotFound(w.api.Delete(w.ctx, &p, client.GracePeriodSeconds(0))))
		t.Logf("deleted pod %s, %s", p.Name, p.Status.Phase)
	}
}

// held has the guest's shim do nothing while something is done that takes long.
func (w *walk) held(t *testing.T, do func()) {
	t.Helper()
	pids := w.shims(t)
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGSTOP) // it may have ended
	}
	do()
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGCONT)
	}
}

// kubeletAway has the kubelet away until all has been done that is done without it.
func kubeletAway(t *testing.T, w *walk) {
	w.held(t, func() { must(t, w.StopComponent(cluster.Kubelet)) })
	w.unattended(t)
	must(t, w.StartComponent(w.ctx, cluster.Kubelet))
}

// unattended waits until a save that is under way on the node has ended there.
func (w *walk) unattended(t *testing.T) {
	t.Helper()
	if len(w.images(t)) > len(w.before) {
		w.eventually(t, func() bool { return len(w.vmms(t)) == 0 }, func() string { return "the save on the node does not end" })
	}
}

func apiServerAway(t *testing.T, w *walk) {
	w.held(t, func() { must(t, w.StopComponent(cluster.APIServer)) })
	w.eventually(t, func() bool { return unix.Kill(w.leading, 0) != nil },
		func() string { return "the leading controller goes on, though it can't know that it leads" })
	must(t, w.StartComponent(w.ctx, cluster.APIServer))
	w.comeBack(t, "vmlet-controller")
}

// powerCut ends all that runs in pods, at once, and what the node has in memory of VMs; the machine
// itself stays, and with it its boot id.
func powerCut(t *testing.T, w *walk) {
	w.held(t, func() {
		must(t, w.StopComponent(cluster.Kubelet))
		must(t, w.StopComponent(cluster.Containerd))
		w.killed = append(w.killed, w.vmms(t)...)
		kill(t, w.ofPods(t)...)
	})
	w.eventually(t, func() bool { return len(w.ofPods(t)) == 0 }, func() string { return "processes of pods don't end" })
	_, err := w.InNode(w.ctx, "find", "/run/vmlet", "-mindepth", "1", "-delete")
	must(t, err)
	must(t, w.StartComponent(w.ctx, cluster.Containerd))
	must(t, w.StartComponent(w.ctx, cluster.Kubelet))
	w.comeBack(t, "vmlet-api", "vmlet-agent", "vmlet-controller")
}

// ofPods are all processes of pods, and those that containerd has beside them.
func (w *walk) ofPods(t *testing.T) (pids []int) {
	t.Helper()
	name := filepath.Base(filepath.Dir(w.Kubeconfig()))
	all, err := filepath.Glob("/proc/[0-9]*")
	must(t, err)
	for _, dir := range all {
		cgroup, err := os.ReadFile(filepath.Join(dir, "cgroup"))
		if err != nil || !strings.Contains(string(cgroup), name) {
			continue
		}
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || len(line) == 0 { // it has ended
			continue
		}
		comm, err := os.ReadFile(filepath.Join(dir, "comm"))
		if err != nil || !strings.Contains(string(cgroup), "/kubepods") && !strings.HasPrefix(string(comm), "containerd-shim") {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		must(t, err)
		pids = append(pids, pid)
	}
	return pids
}

// promptly looks all the time, so as not to miss what lasts for a moment.
func (v *installed) promptly(t *testing.T, what string, so func() bool) {
	t.Helper()
	ctx, cancel := suites.Wait(v.ctx, t, patience)
	defer cancel()
	for ; !so(); time.Sleep(time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatalf("%s does not come: %v", what, context.Cause(ctx))
		}
	}
}
