package virtualmachines_test

import (
	"strings"
	"testing"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// testUninstall: vmlet's namespace goes at once with all that would hold up others; VMs go on
// meanwhile, and a vmlet that is installed again takes them up. Where the kinds are another
// controller's, vmlet's says so and ends.
func (v *installed) testUninstall(t *testing.T) {
	v.create(t, machine(t, "outliving", kubevirtv1.RunStrategyAlways, idle))
	vmi := v.phase(t, "outliving", kubevirtv1.PhaseRunning)
	v.printed(t, "outliving", kubevirtv1.StatusRunning)
	vmm := v.vmm(t, vmi)
	v.kubectl(t, "delete", "namespace", "vmlet", "--timeout=24h")
	if left := v.kubectl(t, "get", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "-o", "name"); left != "" {
		t.Errorf("after vmlet was uninstalled there are still\n%s", left)
	}
	must(t, v.Apply(v.ctx, virtualMachine("unasked", accepted)))
	if !v.runs(vmm) {
		t.Error("a VM ended when vmlet was uninstalled")
	}
	v.deploy(t)
	if now := v.vmm(t, v.phase(t, "outliving", kubevirtv1.PhaseRunning)); now != vmm {
		t.Errorf("after vmlet was installed again the VM is in process %d, want %d", now, vmm)
	}
	v.nothingLeft(t)

	v.kubectl(t, "label", "crd", "virtualmachines.kubevirt.io", "app.kubernetes.io/part-of=kubevirt", "--overwrite")
	v.kubectl(t, "rollout", "restart", "deployment/vmlet-controller", "-n", "vmlet")
	var log string
	v.eventually(t, func() bool {
		log, _ = v.Kubectl(v.ctx, "get", "pods", "-n", "vmlet", "-l", "app.kubernetes.io/name=vmlet-controller",
			"-o", "jsonpath={.items[*].status.containerStatuses[*].lastState.terminated.message}")
		return strings.Contains(log, "virtualmachines.kubevirt.io belongs to another controller")
	}, func() string { return "vmlet-controller does not say that the kinds are another's: " + log })
}
