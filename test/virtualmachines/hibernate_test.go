package virtualmachines_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/test/cluster"
	"github.com/vmlet/vmlet/test/everything"
)

// sleeper is a VM with a disk on a claim and one that is made in its pod. Words are of its spec,
// and of its template's.
func sleeper(name, words, inside string) string {
	return sleeping(name, words, inside) + dynamic(name, "local-path", "Filesystem", "ReadWriteOnce", "16Mi")
}

// sleeping is a sleeper without its claim.
func sleeping(name, words, inside string) string {
	return fmt.Sprintf(`
---
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: %[1]s, namespace: guests}
spec:
  runStrategy: Always
  %[3]s
  template:
    spec:
      %[4]s
      terminationGracePeriodSeconds: 0
      domain:
        memory: {guest: 128Mi}
        resources: {requests: {cpu: 10m}}
        devices: {disks: [{name: root, disk: {bus: virtio}}, {name: data, disk: {bus: virtio}}]}
        firmware:
          kernelBoot:
            kernelArgs: console=ttyS0 quiet no_timer_check
            container: {image: %[2]q, kernelPath: /boot/vmlinuz, initrdPath: /boot/initrd}
      volumes:
      - {name: root, containerDisk: {image: %[2]q}}
      - {name: data, persistentVolumeClaim: {claimName: %[1]s}}
`, name, linuxImage, words, inside)
}

// onLocalPath has claims that are made for hibernations on the local provisioner.
const onLocalPath = "hibernateStrategy: {mode: Save, storageClassName: local-path}"

// testHibernate: a guest goes on where it was, with its memory, processes and disks, after its
// pod was gone; with a claim that it mounts all the time, and with one that is attached.
func (v *installed) testHibernate(t *testing.T) {
	must(t, v.Apply(v.ctx, sleeper("mounted", onLocalPath, "")+sleeper("attached", "", "")))
	rounds := 2
	if everything.Wanted() {
		rounds = 50
	}
	for _, name := range []string{"mounted", "attached"} {
		v.goesOn(t, name, rounds)
	}
	v.startsAfresh(t, "mounted")
	v.evacuates(t)
	v.hibernatesOnBlock(t)
	for _, name := range []string{"mounted", "attached", "evacuated"} {
		v.kubectl(t, "delete", "vm", name, "-n", guests)
		v.noMachine(t, name)
	}
	v.noClaims(t)
}

// goesOn hibernates a VM and resumes it, again and again.
func (v *installed) goesOn(t *testing.T, name string, rounds int) {
	t.Helper()
	pod := v.podOf(t, v.phase(t, name, kubevirtv1.PhaseRunning))
	boot := v.remember(t, name, pod)
	for round := range rounds {
		v.strategy(t, name, kubevirtv1.RunStrategyHibernate)
		vm := v.printed(t, name, kubevirtv1.StatusHibernated)
		v.asleep(t, vm)
		v.strategy(t, name, kubevirtv1.RunStrategyAlways)
		v.printed(t, name, kubevirtv1.StatusRunning)
		pod = v.podOf(t, v.phase(t, name, kubevirtv1.PhaseRunning))
		v.askAgain(t, pod, "cat /proc/sys/kernel/random/boot_id", boot)
		v.askAgain(t, pod, "verify", "verified ")
		v.askAgain(t, pod, "cat /dev/vda", "in the pod")
		v.askAgain(t, pod, "cat /dev/vdb", "on the claim")
		v.awake(t, name, round)
		if h := vm.Status.HibernationStatus; h.ClaimCreated {
			v.claimLeft(t, pod, h.ClaimName)
		} else if name == "attached" {
			t.Errorf("nobody has made the claim that was attached: %s", text(vm))
		}
	}
}

// claimLeft: a claim that was made for one hibernation is gone while the VM runs that was resumed from it, and
// so is the pod that has attached it.
func (v *installed) claimLeft(t *testing.T, pod *corev1.Pod, claim string) {
	t.Helper()
	v.eventually(t, func() bool {
		var attached corev1.PodList
		must(t, v.api.List(v.ctx, &attached, client.InNamespace(guests), client.MatchingLabels{contract.LabelAttachedTo: string(pod.UID)}))
		return len(attached.Items) == 0 && get(t, v, guests, claim, new(corev1.PersistentVolumeClaim)) == nil
	}, func() string {
		return "the claim of the saved memory stays: " + text(get(t, v, guests, claim, new(corev1.PersistentVolumeClaim)))
	})
	now := get(t, v, guests, pod.Name, new(corev1.Pod))
	if now == nil || now.UID != pod.UID || now.DeletionTimestamp != nil {
		t.Errorf("the VM's pod is %s, want the one in which it was resumed", text(now))
	}
}

// remember has the guest write to its disks and its memory, and returns its boot id.
func (v *installed) remember(t *testing.T, name string, pod *corev1.Pod) string {
	t.Helper()
	for command, answer := range map[string]string{
		"mem 32 7": "filled 32 MiB", "write /dev/vda in the pod": "written 11 bytes", "write /dev/vdb on the claim": "written 13 bytes",
	} {
		v.ask(t, pod, command, answer)
	}
	log := v.ask(t, pod, "cat /proc/sys/kernel/random/boot_id", "cat 37 bytes")
	before, _, _ := strings.Cut(log, "cat 37 bytes")
	lines := strings.Fields(before)
	return lines[len(lines)-1]
}

// asleep: nothing of a VM is left once it is Hibernated but its status and its claim.
func (v *installed) asleep(t *testing.T, vm *kubevirtv1.VirtualMachine) {
	t.Helper()
	h := vm.Status.HibernationStatus
	if h == nil || h.Phase != kubevirtv1.HibernationCompleted || h.Image == nil || h.Image.ID == "" || h.Reason != "" || h.CompletionTimestamp == nil {
		t.Fatalf("a hibernated VM's status is %s", text(vm))
	}
	if vmi := get(t, v, guests, vm.Name, new(kubevirtv1.VirtualMachineInstance)); vmi != nil {
		t.Errorf("a hibernated VM has an instance: %s", text(vmi))
	}
	var pods corev1.PodList
	must(t, v.api.List(v.ctx, &pods, client.InNamespace(guests)))
	for _, p := range pods.Items {
		if strings.Contains(p.Name, vm.Name) || p.Labels[contract.LabelAttachedTo] != "" {
			t.Errorf("a pod of the hibernated VM %s is there: %s", vm.Name, p.Name)
		}
	}
	if claim := get(t, v, guests, h.Image.ClaimName, new(corev1.PersistentVolumeClaim)); claim == nil || claim.DeletionTimestamp != nil {
		t.Errorf("the claim %s of a hibernated VM is %s", h.Image.ClaimName, text(claim))
	}
}

// awake: what was saved is gone once the guest runs.
func (v *installed) awake(t *testing.T, name string, round int) {
	t.Helper()
	var vm *kubevirtv1.VirtualMachine
	v.eventually(t, func() bool {
		vm = v.vm(t, name)
		r := vm.Status.ResumeStatus
		return vm.Status.HibernationStatus == nil && (r == nil || r.Phase == kubevirtv1.ResumeCleaned)
	}, func() string { return fmt.Sprintf("after round %d the VM's status is %s", round, text(vm)) })
	v.eventually(t, func() bool {
		out, err := v.InNode(v.ctx, "find", "/var/lib/local-path", "-name", "restore-"+name+"-*")
		must(t, err)
		return strings.TrimSpace(out) == ""
	}, func() string { return "the image of VM " + name + " is still there" })
}

// startsAfresh: a hibernated VM boots if that is asked for, and its image is gone.
func (v *installed) startsAfresh(t *testing.T, name string) {
	t.Helper()
	v.strategy(t, name, kubevirtv1.RunStrategyHibernate)
	v.printed(t, name, kubevirtv1.StatusHibernated)
	boot := kubevirtv1.StartBoot
	v.change(t, name, func(vm *kubevirtv1.VirtualMachine) {
		*vm.Spec.RunStrategy, vm.Spec.StartStrategy = kubevirtv1.RunStrategyAlways, &boot
	})
	v.printed(t, name, kubevirtv1.StatusRunning)
	pod := v.podOf(t, v.phase(t, name, kubevirtv1.PhaseRunning))
	v.ask(t, pod, "verify", "nothing was filled")
	v.askAgain(t, pod, "cat /dev/vdb", "on the claim")
	if vm := v.vm(t, name); vm.Status.HibernationStatus != nil {
		t.Errorf("a VM that was booted afresh is still hibernated: %s", text(vm))
	}
}

// evacuates: an eviction saves the guest, which goes on in another pod.
func (v *installed) evacuates(t *testing.T) {
	t.Helper()
	must(t, v.Apply(v.ctx, sleeper("evacuated", onLocalPath, "evictionStrategy: Hibernate")))
	vmi := v.phase(t, "evacuated", kubevirtv1.PhaseRunning)
	pod := v.podOf(t, vmi)
	boot := v.remember(t, "evacuated", pod)
	err := v.evict(t, vmi)
	if err == nil || !strings.Contains(err.Error(), "TooManyRequests") {
		t.Errorf("an eviction of a VM that is to be saved: %v, want 429", err)
	}
	vmi = v.another(t, vmi)
	pod = v.podOf(t, vmi)
	v.askAgain(t, pod, "cat /proc/sys/kernel/random/boot_id", boot)
	v.askAgain(t, pod, "verify", "verified ")

	v.shutsDown(t, vmi, pod)
	pod = v.podOf(t, v.another(t, vmi))
	v.askAgain(t, pod, "cat /proc/sys/kernel/random/boot_id", boot)
	v.askAgain(t, pod, "verify", "verified ")
}

// shutsDown does to a VM's pod what a kubelet does when its node shuts down: there is no systemd that
// this one would hear of it from.
func (v *installed) shutsDown(t *testing.T, vmi *kubevirtv1.VirtualMachineInstance, pod *corev1.Pod) {
	t.Helper()
	for _, pid := range v.processes(t, "vmlet-shim", pod.Name) {
		command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		must(t, err)
		if strings.HasPrefix(string(command), "vmlet-shim\x00pod\x00") {
			must(t, syscall.Kill(pid, syscall.SIGTERM))
		}
	}
	const down = `{"status":{"conditions":[{"type":"Ready","status":"False","reason":"KubeletNotReady","message":"node is shutting down"}]}}`
	v.until(t, vmi.Name, "one that leaves its node", func(now *kubevirtv1.VirtualMachineInstance) bool {
		if now.UID != vmi.UID || now.Status.EvacuationNodeName == cluster.NodeName {
			return true
		}
		v.kubectl(t, "patch", "node", cluster.NodeName, "--subresource=status", "--type=strategic", "-p", down) // the kubelet takes it back
		return false
	})
}
