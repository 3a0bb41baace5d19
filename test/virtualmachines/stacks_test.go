package virtualmachines_test

import (
	"path/filepath"
	"strings"
	"testing"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/test/cluster"
)

// Images of a virtualisation stack: its launcher is vmlet's own under another name.
const (
	stackLauncher = "vmlet.test/launcher-of-a-stack:1"
	stackWebhooks = "vmlet.test/webhooks-of-a-stack:1"
)

const withStack = `{"developerConfiguration":{"useEmulation":true,"featureGates":["PluginVirtualizationStacks"]},"virtualizationProfile":{"name":"first",` +
	`"virtLauncher":{"virtLauncherImage":"` + stackLauncher + `","virtLauncherOverhead":"300Mi"},` +
	`"pluginWebhooks":{"webhookContainerImage":"` + stackWebhooks + `",` +
	`"validatingWebhooks":[{"name":"vmi-validator","restServicePath":"/validate-vmi","rules":[{"operations":["CREATE","UPDATE"],"apiGroups":["kubevirt.io"],"apiVersions":["v1"],"resources":["virtualmachineinstances"]}]}],` +
	`"mutatingWebhooks":[{"name":"vmi-mutator","restServicePath":"/mutate-vmi","rules":[{"operations":["CREATE"],"apiGroups":["kubevirt.io"],"apiVersions":["*"],"resources":["virtualmachineinstances"]}]}]}}}`

const anotherStack = `{"developerConfiguration":{"useEmulation":true,"featureGates":["PluginVirtualizationStacks"]},"virtualizationProfile":{"name":"second","virtLauncher":{"virtLauncherOverhead":"310Mi"}}}`

// loadStack imports the images of a virtualisation stack.
func (v *installed) loadStack(t *testing.T) {
	t.Helper()
	folder := t.TempDir()
	program, hooks := filepath.Join(folder, "pluginwebhooks"), filepath.Join(folder, "webhooks.tar")
	must(t, cluster.BuildProgram(v.ctx, program, "github.com/vmlet/vmlet/test/pluginwebhooks"))
	must(t, cluster.ProgramImage(hooks, stackWebhooks, program))
	must(t, v.LoadImage(v.ctx, hooks))
	_, err := v.InNode(v.ctx, "ctr", "--namespace", "k8s.io", "images", "tag", "--force", vmletImage, stackLauncher)
	must(t, err)
}

// testStacks: a virtualisation stack's webhooks are called in place of vmlet's own, and its image runs
// VMs; another profile, and none, leave those VMs as they are.
func (v *installed) testStacks(t *testing.T) {
	v.loadStack(t)
	before := v.webhooks(t, "vmlet")
	v.configure(t, withStack)
	v.eventually(t, func() bool { return strings.Contains(v.webhooks(t, "vmlet-plugin"), "vmi-validator.plugin.vmlet.io") },
		func() string { return "the stack's webhooks are not registered" })
	beside := v.webhooks(t, "vmlet")
	if !strings.Contains(beside, "protection-virtualmachineinstances-validator.vmlet.io") || strings.Contains(beside, " virtualmachineinstances-validator.vmlet.io") ||
		!strings.Contains(beside, " virtualmachines-validator.vmlet.io") {
		t.Errorf("vmlet's own webhooks are %s", beside)
	}
	v.create(t, machine(t, "stacked", kubevirtv1.RunStrategyAlways, idle))
	vmi := v.phase(t, "stacked", kubevirtv1.PhaseRunning)
	pod := v.podOf(t, vmi)
	if got := pod.Spec.Containers[0].Image; got != stackLauncher || vmi.Annotations["stack.example.org/seen"] != "true" || len(vmi.Finalizers) == 0 {
		t.Errorf("the VM runs in image %s; its instance: %s", got, text(vmi))
	}
	denied := instance(t, "denied", idle)
	if err := v.api.Create(v.ctx, denied); err == nil || !strings.Contains(err.Error(), "the stack's own validation refuses denied") {
		t.Errorf("an instance that the stack refuses: %v", err)
	}
	const label = "kubevirt.io/created-by=somebody"
	if out, err := v.Kubectl(v.ctx, "label", "vmi", "stacked", "-n", guests, "--overwrite", label); err == nil {
		t.Errorf("a label that controllers go by was changed: %s", out)
	}
	v.configure(t, anotherStack)
	v.eventually(t, func() bool { return v.webhooks(t, "vmlet") == before && v.webhooks(t, "vmlet-plugin") == "" },
		func() string {
			return "the webhooks are not as before: " + v.webhooks(t, "vmlet") + v.webhooks(t, "vmlet-plugin")
		})
	v.create(t, machine(t, "after", kubevirtv1.RunStrategyAlways, idle))
	if got := v.podOf(t, v.phase(t, "after", kubevirtv1.PhaseRunning)).Spec.Containers[0]; got.Image != vmletImage || got.Resources.Requests.Memory().Value() != (310+32)<<20 {
		t.Errorf("under another profile a VM has image %s and %s", got.Image, got.Resources.Requests.Memory())
	}
	v.configure(t, `{"developerConfiguration":{"useEmulation":true}}`)
	if now := v.phase(t, "stacked", kubevirtv1.PhaseRunning); now.UID != vmi.UID || v.podOf(t, now).UID != pod.UID {
		t.Errorf("the first profile's VM is another: %s", text(now))
	}
	v.kubectl(t, "delete", "vm", "--all", "-n", guests, "--wait")
}

// webhooks are the names in the configurations of a name, each after a space.
func (v *installed) webhooks(t *testing.T, name string) string {
	t.Helper()
	return v.kubectl(t, "get", "mutatingwebhookconfiguration,validatingwebhookconfiguration", "--ignore-not-found", "--field-selector=metadata.name="+name,
		"-o", `jsonpath={range .items[*].webhooks[*]}{" "}{.name}{end}`)
}
