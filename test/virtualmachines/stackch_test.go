package virtualmachines_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/test/chtest"
	"github.com/vmlet/vmlet/test/cluster"
	"github.com/vmlet/vmlet/test/everything"
	"github.com/vmlet/vmlet/test/guest"
)

// cloudLauncher is the image of a stack that has cloud-hypervisor, or its stand-in, and no QEMU.
const cloudLauncher = "vmlet.test/launcher-with-cloud-hypervisor:1"

// cloudStack is the configuration of that stack: the profile chooses the hypervisor, the webhook the VMM.
// What a validating webhook that is away does is the argument.
const cloudStack = `{"developerConfiguration":{"useEmulation":true,"featureGates":["PluginVirtualizationStacks"]},"virtualizationProfile":{"name":"cloud",` +
	`"virtualizationComponents":{"hypervisorDevice":"/dev/kvm"},"virtLauncher":{"virtLauncherImage":"` + cloudLauncher + `"},` +
	`"pluginWebhooks":{"webhookContainerImage":"` + stackWebhooks + `",` +
	`"validatingWebhooks":[{"name":"vmi-validator","restServicePath":"/validate-vmi","failurePolicy":"%[1]s","rules":[{"operations":["CREATE","UPDATE"],"apiGroups":["kubevirt.io"],"apiVersions":["v1"],"resources":["virtualmachineinstances"]}]}],` +
	`"mutatingWebhooks":[{"name":"vmi-mutator","restServicePath":"/choose-vmm","failurePolicy":"%[1]s","rules":[{"operations":["CREATE"],"apiGroups":["kubevirt.io"],"apiVersions":["v1"],"resources":["virtualmachineinstances"]}]}]}}}`

// testCloudStack: a virtualisation stack brings its own VMM, and webhooks that choose it: its VMs run,
// pause and hibernate under cloud-hypervisor, which no image of vmlet's has. Webhooks that are down fail
// as they say. Without the stack all is as before.
func (v *installed) testCloudStack(t *testing.T) {
	kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("cloud-hypervisor emulates none, and there is no KVM: %v", err)
	}
	kvm.Close()
	v.loadCloudStack(t)
	before := v.webhooks(t, "vmlet")
	v.configure(t, fmt.Sprintf(cloudStack, "Fail"))
	v.eventually(t, func() bool { return strings.Contains(v.webhooks(t, "vmlet-plugin"), "vmi-validator.plugin.vmlet.io") },
		func() string { return "the stack's webhooks are not registered" })
	beside := v.webhooks(t, "vmlet")
	if !strings.Contains(beside, " protection-virtualmachineinstances-validator.vmlet.io") || strings.Contains(beside, " virtualmachineinstances-validator.vmlet.io") ||
		!strings.Contains(beside, " virtualmachines-validator.vmlet.io") {
		t.Errorf("beside the stack's webhooks vmlet's own are %s", beside)
	}
	v.agentsKnow(t, func(config string) bool { return strings.Contains(config, "cloud") })
	v.judgedByStack(t)
	vm := machine(t, "clouded", kubevirtv1.RunStrategyAlways, counting)
	s := &vm.Spec.Template.Spec
	s.Domain.Resources.Limits = nil
	s.Volumes = []kubevirtv1.Volume{{Name: "scratch", EmptyDisk: &kubevirtv1.EmptyDiskSource{Capacity: resource.MustParse("1Mi")}}}
	vm.Spec.HibernateStrategy = &kubevirtv1.HibernateStrategy{Mode: kubevirtv1.HibernateSave, StorageClassName: new("local-path")}
	v.create(t, vm)
	v.onCloudHypervisor(t, "clouded")
	v.pausesOnCloudHypervisor(t, "clouded")
	v.hibernatesOnCloudHypervisor(t, "clouded")
	v.pluginAway(t, "clouded")
	v.remove(t, machine(t, "clouded", "", idle))
	v.noMachine(t, "clouded")
	v.configure(t, `{"developerConfiguration":{"useEmulation":true}}`)
	v.eventually(t, func() bool { return v.webhooks(t, "vmlet") == before && v.webhooks(t, "vmlet-plugin") == "" },
		func() string {
			return "the webhooks are not as before: " + v.webhooks(t, "vmlet") + v.webhooks(t, "vmlet-plugin")
		})
	v.agentsKnow(t, func(config string) bool { return !strings.Contains(config, "cloud") })
	v.create(t, machine(t, "plain", kubevirtv1.RunStrategyAlways, idle))
	vmi := v.until(t, "plain", "one whose VMM is known", func(vmi *kubevirtv1.VirtualMachineInstance) bool {
		return vmi.Status.Phase == kubevirtv1.PhaseRunning && vmi.Status.VMM != nil
	})
	if pod := v.podOf(t, vmi); pod.Spec.Containers[0].Image != vmletImage || vmi.Status.VMM.Name != spec.VMMQEMU || vmi.Status.VMM.Hypervisor != spec.HypervisorEmulation {
		t.Errorf("after the stack a VM runs in image %s: %s", pod.Spec.Containers[0].Image, text(vmi))
	}
	v.remove(t, machine(t, "plain", "", idle))
	v.noMachine(t, "plain")
}

// agentsKnow has the node's agent start with what the KubeVirt object says to it now. It would see that by
// itself, within two minutes, and devices are not there for new pods while it restarts.
func (v *installed) agentsKnow(t *testing.T, right func(config string) bool) {
	t.Helper()
	var config string
	v.eventually(t, func() bool {
		config = v.kubectl(t, "get", "configmap", contract.ConfigMapCluster, "-n", "vmlet", "--ignore-not-found", "-o", "jsonpath={.data}")
		return right(config)
	}, func() string { return "nodes are told " + config })
	v.kubectl(t, "rollout", "restart", "daemonset/vmlet-agent", "-n", "vmlet")
	must(t, v.RolledOut(v.ctx, "vmlet", "daemonset/vmlet-agent"))
}

// loadCloudStack imports the images of the stack.
func (v *installed) loadCloudStack(t *testing.T) {
	t.Helper()
	folder := t.TempDir()
	program, launcher, hooks := filepath.Join(folder, "pluginwebhooks"), filepath.Join(folder, "launcher.tar"), filepath.Join(folder, "webhooks.tar")
	vmm, err := chtest.Build(v.ctx, folder)
	must(t, err)
	must(t, cluster.BuildProgram(v.ctx, program, "github.com/vmlet/vmlet/test/pluginwebhooks"))
	must(t, cluster.ProgramImage(hooks, stackWebhooks, program))
	must(t, cluster.LauncherImage(v.ctx, launcher, cloudLauncher, vmm))
	must(t, v.LoadImage(v.ctx, hooks))
	must(t, v.LoadImage(v.ctx, launcher))
}

// judgedByStack: the stack's webhook is asked in place of vmlet's, which would refuse what it accepts.
func (v *installed) judgedByStack(t *testing.T) {
	t.Helper()
	odd := instance(t, "odd", idle)
	odd.Spec.Domain.Devices.GPUs = []kubevirtv1.GPU{{Name: "gpu", DeviceName: "example.com/gpu"}}
	if err := v.api.Create(v.ctx, odd, client.DryRunAll); err != nil {
		t.Errorf("what the stack has nothing against: %v", err)
	}
	if err := v.api.Create(v.ctx, instance(t, "denied", idle), client.DryRunAll); err == nil || !strings.Contains(err.Error(), "the stack's own validation refuses denied") {
		t.Errorf("an instance that the stack refuses: %v", err)
	}
}

// onCloudHypervisor: a VM that names neither image, hypervisor nor VMM has the stack's, and the bus that
// its disks leave open is one that this VMM has.
func (v *installed) onCloudHypervisor(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	vmi := v.until(t, name, "one whose VMM is known", func(vmi *kubevirtv1.VirtualMachineInstance) bool {
		return vmi.Status.Phase == kubevirtv1.PhaseRunning && vmi.Status.VMM != nil
	})
	if got, want := *vmi.Status.VMM, (kubevirtv1.VMMStatus{Name: spec.VMMCloudHypervisor, Version: "53.0.0", Hypervisor: spec.HypervisorKVM}); got != want {
		t.Errorf("the instance's VMM is %+v, want %+v", got, want)
	}
	if vmi.Annotations["stack.example.org/seen"] != "true" || vmi.Annotations[contract.AnnotationVMM] != spec.VMMCloudHypervisor {
		t.Errorf("the stack's webhook was not asked about the instance: its annotations are %v", vmi.Annotations)
	}
	pod := v.podOf(t, vmi)
	if got := pod.Spec.Containers[0].Image; got != cloudLauncher {
		t.Errorf("the VM runs in image %s, want %s", got, cloudLauncher)
	}
	status := v.listed(t)[pod.UID].GetStatus()
	if got := status.GetVmm().GetBinary(); got != "/usr/local/bin/cloud-hypervisor" {
		t.Errorf("the VMM is %q", got)
	}
	if disks := status.GetEffectiveSpec().GetDisks(); len(disks) != 1 || disks[0].GetBus() != spec.BusVirtio {
		t.Errorf("the guest's disks are %v, want one on the bus virtio", disks)
	}
	v.runsByMetric(t, *vmi.Status.VMM)
	return pod
}

// runsByMetric: the leading controller counts an instance of a VMM.
func (v *installed) runsByMetric(t *testing.T, of kubevirtv1.VMMStatus) {
	t.Helper()
	line := fmt.Sprintf("\nvmlet_virtualmachineinstances_running{hypervisor=%q,version=%q,vmm=%q} 1\n", of.Hypervisor, of.Version, of.Name)
	var metrics string
	v.eventually(t, func() bool {
		leader := v.kubectl(t, "get", "lease", "vmlet-controller", "-n", "vmlet", "-o", "jsonpath={.spec.holderIdentity}")
		pod, _, _ := strings.Cut(leader, "_")
		address, err := v.Address(v.ctx, cluster.Pod{Namespace: "vmlet", Name: pod}, 8080)
		must(t, err)
		response, err := http.Get("http://" + address + "/metrics")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		must(t, err)
		metrics = string(text)
		return strings.Contains(metrics, line)
	}, func() string { return "the controller has no metric " + line + metrics })
}

// counts waits until a guest has said more, and returns its log.
func (v *installed) counts(t *testing.T, pod *corev1.Pod) (log string) {
	t.Helper()
	at := len(v.kubectl(t, "logs", "-n", guests, pod.Name))
	v.eventually(t, func() bool {
		log = v.kubectl(t, "logs", "-n", guests, pod.Name)
		return len(log) > at && strings.Contains(log[at:], guest.CountPrefix)
	}, func() string { return "the guest counts no more: " + log[max(len(log)-200, 0):] })
	return log
}

// pausesOnCloudHypervisor pauses a guest and lets it go on.
func (v *installed) pausesOnCloudHypervisor(t *testing.T, name string) {
	t.Helper()
	if log := v.counts(t, v.podOf(t, v.vmi(t, name))); !strings.Contains(log, guest.UpLine) {
		t.Errorf("the guest did not say that it is up: %.200s", log)
	}
	v.pauses(t, name)
}

// pauses pauses a guest that counts and lets it go on.
func (v *installed) pauses(t *testing.T, name string) {
	t.Helper()
	admin, pod := v.visitor(t, ""), v.podOf(t, v.vmi(t, name))
	admin.put(t, pathOf(vmiResource, name, "pause"), `{}`, 200, "")
	v.printed(t, name, kubevirtv1.StatusPaused)
	admin.put(t, pathOf(vmiResource, name, "unpause"), `{}`, 200, "")
	v.printed(t, name, kubevirtv1.StatusRunning)
	v.counts(t, pod)
}

// hibernatesOnCloudHypervisor: the guest goes on counting in another pod.
func (v *installed) hibernatesOnCloudHypervisor(t *testing.T, name string) {
	t.Helper()
	v.strategy(t, name, kubevirtv1.RunStrategyHibernate)
	if h := v.printed(t, name, kubevirtv1.StatusHibernated).Status.HibernationStatus; h == nil || h.Image == nil || h.Image.VMM != spec.VMMCloudHypervisor {
		t.Errorf("the guest was saved by another VMM: %+v", h)
	}
	v.strategy(t, name, kubevirtv1.RunStrategyAlways)
	v.printed(t, name, kubevirtv1.StatusRunning)
	if log := v.counts(t, v.onCloudHypervisor(t, name)); strings.Contains(log, guest.UpLine) {
		t.Errorf("the guest has booted anew: %.200s", log)
	}
}

// pluginAway: webhooks that are down stay registered. Those that say Fail refuse requests and are named,
// those that say Ignore let them pass, but for what vmlet itself protects. runs is a VM that runs.
func (v *installed) pluginAway(t *testing.T, runs string) {
	t.Helper()
	own, plugins := v.webhooks(t, "vmlet"), v.webhooks(t, "vmlet-plugin")
	v.kubectl(t, "cordon", cluster.NodeName) // else the pods would be back at once
	defer v.kubectl(t, "uncordon", cluster.NodeName)
	v.kubectl(t, "delete", "pods", "-l", "app.kubernetes.io/name=plugin-admission-webhooks", "-n", "vmlet", "--timeout=24h")
	if everything.Wanted() {
		v.killAll(t, "vmlet-controller") // another one knows nothing of the time before
		v.leader(t)
	}
	err := v.api.Create(v.ctx, instance(t, "unjudged", idle))
	if err == nil || !strings.Contains(err.Error(), `failed calling webhook "vmi-mutator.plugin.vmlet.io"`) {
		t.Errorf("an instance while the stack's webhooks are down: %v, want a refusal that names the webhook", err)
	}
	if _, err := v.Kubectl(v.ctx, "label", "vmi", runs, "-n", guests, "example.org/mine=1"); err == nil || !strings.Contains(err.Error(), "vmi-validator.plugin.vmlet.io") {
		t.Errorf("a label while the stack's webhooks are down: %v, want a refusal that names the webhook", err)
	}
	v.configure(t, fmt.Sprintf(cloudStack, "Ignore"))
	v.eventually(t, func() bool {
		_, err := v.Kubectl(v.ctx, "label", "vmi", runs, "-n", guests, "--overwrite", "example.org/mine=1")
		return err == nil && v.api.Create(v.ctx, instance(t, "probing", idle), client.DryRunAll) == nil
	}, func() string { return "webhooks that are down and say Ignore refuse requests" })
	v.create(t, instance(t, "unjudged", idle))
	vmi := v.vmi(t, "unjudged")
	if len(vmi.Finalizers) == 0 || vmi.Annotations[contract.AnnotationHypervisor] != spec.HypervisorKVM || vmi.Annotations[contract.AnnotationVMM] != "" {
		t.Errorf("an instance that no plugin has seen is %s", text(vmi))
	}
	v.protected(t, runs)
	if now := v.webhooks(t, "vmlet"); now != own || v.webhooks(t, "vmlet-plugin") != plugins {
		t.Errorf("webhooks were%s and%s, and are%s and%s while the plugin is down", own, plugins, now, v.webhooks(t, "vmlet-plugin"))
	}
	v.remove(t, vmi)
	v.noInstance(t, "unjudged")
	v.kubectl(t, "uncordon", cluster.NodeName)
	must(t, v.RolledOut(v.ctx, "vmlet", "deployment/plugin-admission-webhooks"))
	v.eventually(t, func() bool {
		err := v.api.Create(v.ctx, instance(t, "denied", idle), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "the stack's own validation refuses denied")
	}, func() string { return "the stack's webhooks are up, and not asked" })
	if now := v.phase(t, runs, kubevirtv1.PhaseRunning); !isTrue(condition(now.Status.Conditions, kubevirtv1.ConditionReady)) {
		t.Errorf("the VM that ran meanwhile is %s", text(now))
	}
}

// protected: what controllers alone write is theirs whoever judges, and whoever does not.
func (v *installed) protected(t *testing.T, name string) {
	t.Helper()
	const label = contract.LabelCreatedBy
	if _, err := v.Kubectl(v.ctx, "label", "vmi", name, "-n", guests, "--overwrite", label+"=somebody"); err == nil || !strings.Contains(err.Error(), "the label is set by controllers alone") {
		t.Errorf("the label %s is changed: %v", label, err)
	}
	forged := instance(t, "forged", idle)
	forged.Labels = map[string]string{contract.LabelNodeName: cluster.NodeName}
	if err := v.api.Create(v.ctx, forged, client.DryRunAll); err == nil || !strings.Contains(err.Error(), contract.LabelNodeName) {
		t.Errorf("an instance with the label %s: %v", contract.LabelNodeName, err)
	}
	const spec = `{"spec":{"terminationGracePeriodSeconds":7}}`
	if _, err := v.Kubectl(v.ctx, "patch", "vmi", name, "-n", guests, "--type=merge", "-p", spec); err == nil || !strings.Contains(err.Error(), "the spec of an instance can't be changed") {
		t.Errorf("the spec of an instance that runs is changed: %v", err)
	}
	const status = `{"status":{"phase":"Failed"}}`
	v.kubectl(t, "patch", "vmi", name, "-n", guests, "--type=merge", "-p", status) // is no part of the object proper
	if now := v.vmi(t, name); now.Status.Phase != kubevirtv1.PhaseRunning {
		t.Errorf("the status was written with the object: %s", now.Status.Phase)
	}
	v.kubectl(t, "create", "rolebinding", "stack-editor", "--clusterrole=edit", "--user=stack-editor", "-n", guests)
	defer v.kubectl(t, "delete", "rolebinding", "stack-editor", "-n", guests)
	_, err := v.Kubectl(v.ctx, "patch", "vmi", name, "-n", guests, "--as=stack-editor", "--subresource=status", "--type=merge", "-p", status)
	if err == nil || !strings.Contains(err.Error(), "Forbidden") {
		t.Errorf("the status as a user who may edit: %v, want that it is forbidden", err)
	}
}
