package virtualmachines_test

import (
	"os"
	"strings"
	"testing"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
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
	if left := v.kubectl(t, "get", "mutatingwebhookconfigurations,validatingwebhookconfigurations,apiservices", "-l", "app.kubernetes.io/part-of=vmlet", "-o", "name"); left != "" {
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

	v.kubectl(t, "label", "crd", "virtualmachines.kubevirt.io", contract.LabelDefinition+"-")
	v.kubectl(t, "rollout", "restart", "deployment/vmlet-controller", "-n", "vmlet")
	var log string
	v.eventually(t, func() bool {
		log, _ = v.Kubectl(v.ctx, "get", "pods", "-n", "vmlet", "-l", "app.kubernetes.io/name=vmlet-controller",
			"-o", "jsonpath={.items[*].status.containerStatuses[*].lastState.terminated.message}")
		return strings.Contains(log, "virtualmachines.kubevirt.io belongs to another controller")
	}, func() string { return "vmlet-controller does not say that the kinds are another's: " + log })
	v.kubectl(t, "label", "crd", "virtualmachines.kubevirt.io", contract.LabelDefinition+"=")
}

// testUninstallAsDocumented: the commands of docs/install.md leave nothing of vmlet, though the
// autopilot would make some of it again.
func (v *installed) testUninstallAsDocumented(t *testing.T) {
	v.deploy(t)
	_, err := v.ApplyFolder(v.ctx, "../../deploy/autopilot", "--server-side")
	must(t, err)
	v.kubectl(t, "annotate", "kubevirt", "kubevirt", "-n", "vmlet", "platform.kubevirt.io/autopilot=true")
	v.ownedByAutopilot(t, managed()[0])
	v.create(t, machine(t, "leaving", kubevirtv1.RunStrategyAlways, idle))
	v.phase(t, "leaving", kubevirtv1.PhaseRunning)
	for _, command := range uninstallCommands(t) {
		v.kubectl(t, command...)
	}
	kinds := "crd,clusterroles,clusterrolebindings,validatingadmissionpolicies,mutatingwebhookconfigurations,validatingwebhookconfigurations,apiservices"
	if left := v.kubectl(t, "get", kinds, "-l", "app.kubernetes.io/part-of=vmlet", "-o", "name"); left != "" {
		t.Errorf("after vmlet was uninstalled there are still\n%s", left)
	}
}

// uninstallCommands are the arguments of kubectl in the first block of the document's section
// Uninstall, for an installation of deploy/cluster without monitoring.
func uninstallCommands(t *testing.T) (commands [][]string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/install.md")
	must(t, err)
	_, section, _ := strings.Cut(string(text), "\n## Uninstall\n")
	_, block, _ := strings.Cut(section, "```sh\n")
	block, _, found := strings.Cut(block, "```")
	if !found {
		t.Fatal("docs/install.md has no commands in its section Uninstall")
	}
	for line := range strings.Lines(block) {
		line, _, _ = strings.Cut(line, "#")
		line = strings.NewReplacer("-k .", "-k ../../deploy/cluster", "-k deploy/", "-k ../../deploy/").Replace(line)
		if args := strings.Fields(line); !strings.Contains(line, "monitoring") {
			commands = append(commands, args[1:])
		}
	}
	return commands
}
