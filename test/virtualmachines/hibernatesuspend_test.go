package virtualmachines_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/test/guest"
)

// suspendPart boots a guest of 256 MiB twice, and has it write and read its own swap: it runs where
// everything does, and where it is named.
const suspendPart = "suspend to disk"

// suspender is a VM with a real guest agent that suspends itself to swap on a claim. Its root is
// read-only: a container disk is another one after the resume, and must be the same.
const suspender = `
---
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: suspender, namespace: guests}
spec:
  runStrategy: Always
  hibernateStrategy: {mode: SuspendToDisk}
  template:
    spec:
      terminationGracePeriodSeconds: 0
      domain:
        memory: {guest: 256Mi}
        resources: {requests: {cpu: 10m}}
        devices: {disks: [{name: root, disk: {bus: virtio}}, {name: swap, disk: {bus: virtio}}]}
        firmware:
          kernelBoot:
            kernelArgs: %[1]s no_timer_check ro resume=/dev/vdb
            container: {image: %[2]q, kernelPath: /boot/vmlinuz, initrdPath: /boot/initrd}
      volumes:
      - {name: root, containerDisk: {image: %[2]q, path: /agent/disk.img}}
      - {name: swap, persistentVolumeClaim: {claimName: swap}}
`

// testSuspendToDisk: a guest whose agent suspends it to its own disk (ACPI S4) is gone, without an image
// of vmlet's, and goes on after the next start with what its shell had in memory.
func (v *installed) testSuspendToDisk(t *testing.T) {
	must(t, v.Apply(v.ctx, fmt.Sprintf(suspender, guest.SmallDiskCmdline, linuxImage)+
		dynamic("swap", "local-path", "Filesystem", "ReadWriteOnce", "256Mi")))
	pod := v.podOf(t, v.agentConnected(t))
	v.shell(t, pod, "grep -q vdb /proc/swaps || { mkswap /dev/vdb && swapon /dev/vdb; }; grep -q vdb /proc/swaps && echo swap''ped", "swapped")
	v.shell(t, pod, "kept=$((41 + 1)); echo no''ted", "noted")

	v.strategy(t, "suspender", kubevirtv1.RunStrategyHibernate)
	vm := v.printed(t, "suspender", kubevirtv1.StatusHibernated)
	h := vm.Status.HibernationStatus
	if h == nil || h.Mode != kubevirtv1.HibernateSuspendToDisk || h.Phase != kubevirtv1.HibernationCompleted || h.Image != nil || h.ClaimCreated {
		t.Errorf("the status of a VM that has suspended itself is %s", text(vm))
	}
	var pods corev1.PodList
	must(t, v.api.List(v.ctx, &pods, client.InNamespace(guests), client.MatchingLabels{"vm.kubevirt.io/name": "suspender"}))
	if len(pods.Items) != 0 {
		t.Errorf("%d pods of a VM that has suspended itself are there", len(pods.Items))
	}

	v.strategy(t, "suspender", kubevirtv1.RunStrategyAlways)
	v.printed(t, "suspender", kubevirtv1.StatusRunning)
	pod = v.podOf(t, v.phase(t, "suspender", kubevirtv1.PhaseRunning))
	v.shell(t, pod, "echo sti''ll:$kept", "still:42")
	v.agentConnected(t)
	v.kubectl(t, "delete", "vm/suspender", "pvc/swap", "-n", guests)
	v.noMachine(t, "suspender")
}

// agentConnected returns the suspender's instance once the guest's agent is heard.
func (v *installed) agentConnected(t *testing.T) *kubevirtv1.VirtualMachineInstance {
	t.Helper()
	return v.until(t, "suspender", "one whose agent is connected", func(vmi *kubevirtv1.VirtualMachineInstance) bool {
		return isTrue(condition(vmi.Status.Conditions, kubevirtv1.ConditionAgentConnected))
	})
}
