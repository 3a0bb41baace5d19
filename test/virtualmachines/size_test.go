package virtualmachines_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
)

// testLiveSize: a guest that runs gets the vCPUs and the memory of another instancetype, in its pod, which
// requests the CPU for it; what it can't be given needs a restart.
func (v *installed) testLiveSize(t *testing.T) {
	const types = `
---
apiVersion: instancetype.kubevirt.io/v1beta1
kind: VirtualMachineInstancetype
metadata: {name: %[1]s, namespace: guests}
spec: {cpu: {guest: %[2]d, maxSockets: 2}, memory: {guest: %[3]s}}
`
	must(t, v.Apply(v.ctx, fmt.Sprintf(types, "one", 1, "128Mi")+fmt.Sprintf(types, "two", 2, "96Mi")+fmt.Sprintf(types, "more", 2, "160Mi")+fmt.Sprintf(`
---
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: sized, namespace: guests}
spec:
  runStrategy: Always
  instancetype: {kind: VirtualMachineInstancetype, name: one}
  template:
    spec:
      terminationGracePeriodSeconds: 0
      domain:
        devices: {}
        firmware:
          kernelBoot:
            kernelArgs: console=ttyS0 quiet no_timer_check
            container: {image: %[1]q, kernelPath: /boot/vmlinuz, initrdPath: /boot/initrd}
      volumes: [{name: root, containerDisk: {image: %[1]q}}]
`, linuxImage)))
	vmi := v.phase(t, "sized", kubevirtv1.PhaseRunning)
	pod := v.podOf(t, vmi)
	v.ask(t, pod, "cat /sys/devices/system/cpu/present", "cat 2 bytes")
	before := requestedCPU(pod)

	become := func(name string) {
		v.kubectl(t, "patch", "vm", "sized", "-n", guests, "--type=merge", "-p", fmt.Sprintf(`{"spec":{"instancetype":{"name":%q}}}`, name))
	}
	become("two")
	vmi = v.until(t, "sized", "one with two vCPUs and less memory", func(vmi *kubevirtv1.VirtualMachineInstance) bool {
		s := &vmi.Status
		return s.CurrentCPUTopology != nil && s.CurrentCPUTopology.Sockets == 2 && s.Memory != nil && s.Memory.GuestCurrent != nil && s.Memory.GuestCurrent.String() == "96Mi"
	})
	now := v.podOf(t, vmi)
	if now.UID != pod.UID || now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the guest was restarted to be resized: pod %s", now.Name)
	}
	v.ask(t, pod, "cat /sys/devices/system/cpu/present", "cat 4 bytes") // 0-1
	if after := requestedCPU(now); after <= before {
		t.Errorf("the pod requests %dm of CPU for two vCPUs, and requested %dm for one", after, before)
	}
	restart := func(wanted bool) {
		t.Helper()
		var vm *kubevirtv1.VirtualMachine
		v.eventually(t, func() bool {
			vm = v.vm(t, "sized")
			for _, c := range vm.Status.Conditions {
				if c.Type == kubevirtv1.ConditionRestartRequired {
					return wanted
				}
			}
			return !wanted && vm.Status.ObservedGeneration == vm.Generation
		}, func() string { return fmt.Sprintf("that a restart is required is not said %v: %s", wanted, text(vm)) })
	}
	restart(false)
	become("more")
	restart(true)
	v.kubectl(t, "delete", "vm", "sized", "-n", guests)
	v.noMachine(t, "sized")
}

// requestedCPU is what the VM's container requests, in thousandths.
func requestedCPU(p *corev1.Pod) int64 {
	for _, c := range p.Spec.Containers {
		if c.Name == contract.ContainerCompute {
			return c.Resources.Requests.Cpu().MilliValue()
		}
	}
	return 0
}
