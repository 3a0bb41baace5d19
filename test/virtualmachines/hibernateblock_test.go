package virtualmachines_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/test/cluster"
)

// passerby is a pod that has the claim of the VM "block", and could write to it.
const passerby = `
---
apiVersion: v1
kind: Pod
metadata: {name: passerby, namespace: guests}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  securityContext: {runAsNonRoot: true, runAsUser: 107, fsGroup: 107, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: passerby
    image: ` + cluster.BusyboxImage + `
    command: [sh, -c, "true"]
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
    volumeDevices: [{name: v, devicePath: /dev/v}]
  volumes: [{name: v, persistentVolumeClaim: {claimName: block}}]
`

// hibernatesOnBlock: a guest whose disk is a block device goes on if no pod has used its claim
// meanwhile, also where the controllers were replaced, and is refused if one has.
func (v *installed) hibernatesOnBlock(t *testing.T) {
	t.Helper()
	must(t, v.Apply(v.ctx, sleeping("block", onLocalPath, "")+dynamic("block", "loop", "Block", "ReadWriteOnce", "16Mi")))
	boot := v.remember(t, "block", v.podOf(t, v.phase(t, "block", kubevirtv1.PhaseRunning)))
	v.strategy(t, "block", kubevirtv1.RunStrategyHibernate)
	v.asleep(t, v.printed(t, "block", kubevirtv1.StatusHibernated))
	v.kubectl(t, "delete", "pods", "-n", "vmlet", "-l", "app.kubernetes.io/name=vmlet-controller", "--now", "--timeout=24h")
	must(t, v.RolledOut(v.ctx, "vmlet", "deployment/vmlet-controller"))
	v.strategy(t, "block", kubevirtv1.RunStrategyAlways)
	v.printed(t, "block", kubevirtv1.StatusRunning)
	pod := v.podOf(t, v.phase(t, "block", kubevirtv1.PhaseRunning))
	v.askAgain(t, pod, "cat /proc/sys/kernel/random/boot_id", boot)
	v.askAgain(t, pod, "cat /dev/vdb", "on the claim")

	v.strategy(t, "block", kubevirtv1.RunStrategyHibernate)
	v.printed(t, "block", kubevirtv1.StatusHibernated)
	must(t, v.Apply(v.ctx, passerby))
	v.eventually(t, func() bool {
		p := get(t, v, guests, "passerby", new(corev1.Pod))
		return p != nil && p.Status.Phase == corev1.PodSucceeded
	}, func() string { return "the pod that uses the claim does not end" })
	v.kubectl(t, "delete", "pod", "passerby", "-n", guests, "--timeout=24h")
	v.strategy(t, "block", kubevirtv1.RunStrategyAlways)
	var vm *kubevirtv1.VirtualMachine
	v.eventually(t, func() bool {
		vm = v.vm(t, "block")
		r := vm.Status.ResumeStatus
		return r != nil && r.Phase == kubevirtv1.ResumeFailed && r.Reason == contract.RestoreDiskChanged &&
			strings.Contains(r.Message, "pod passerby has used claim block")
	}, func() string { return "a VM whose disk another pod has used is not refused: " + text(vm) })
	begin := kubevirtv1.StartBoot
	v.change(t, "block", func(vm *kubevirtv1.VirtualMachine) { vm.Spec.StartStrategy = &begin })
	v.printed(t, "block", kubevirtv1.StatusRunning)
	v.kubectl(t, "delete", "vm", "block", "-n", guests)
	v.noMachine(t, "block")
	v.kubectl(t, "delete", "pvc", "block", "-n", guests, "--timeout=24h")
}
