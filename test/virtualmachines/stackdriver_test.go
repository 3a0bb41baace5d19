package virtualmachines_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/test/cluster"
	"github.com/vmlet/vmlet/test/guest"
)

// driverLauncher is the image of a stack whose VMM vmlet has never heard of: test/samplestack.
const (
	driverLauncher = "vmlet.test/launcher-with-microvm:1"
	microVM        = "microvm"
	driverStack    = `{"developerConfiguration":{"useEmulation":true,"featureGates":["PluginVirtualizationStacks"]},"virtualizationProfile":{"name":"microvm",` +
		`"virtualizationComponents":{"vmmProcessExecutable":"microvm"},"virtLauncher":{"virtLauncherImage":"` + driverLauncher + `"}}}`
)

// testDriverStack: a virtualisation stack brings a VMM that no part of vmlet knows, by a driver in its image
// alone. Its VMs boot, pause, hibernate and go on; what the VMM can't do is refused by its field; without the
// profile all is as before.
func (v *installed) testDriverStack(t *testing.T) {
	tar := filepath.Join(t.TempDir(), "launcher.tar")
	must(t, cluster.DriverImage(v.ctx, tar, driverLauncher))
	must(t, v.LoadImage(v.ctx, tar))
	named := machine(t, "named", kubevirtv1.RunStrategyAlways, idle)
	named.Spec.Template.ObjectMeta.Annotations = map[string]string{contract.AnnotationVMM: microVM}
	if err := v.api.Create(v.ctx, named.DeepCopy(), client.DryRunAll); err == nil || !strings.Contains(err.Error(), contract.AnnotationVMM) {
		t.Errorf("a VMM that no stack brings: %v, want a refusal that names the annotation", err)
	}
	v.configure(t, driverStack)
	v.eventually(t, func() bool { return v.api.Create(v.ctx, named.DeepCopy(), client.DryRunAll) == nil },
		func() string { return "the stack's VMM can't be named" })
	v.agentsKnow(t, func(config string) bool { return strings.Contains(config, microVM) })
	v.stackWorks(t)
	v.create(t, withoutNetwork(machine(t, "strange", kubevirtv1.RunStrategyAlways, counting)))
	pod := v.onMicroVM(t, "strange")
	v.pausesOnCloudHypervisor(t, "strange")
	v.strategy(t, "strange", kubevirtv1.RunStrategyHibernate)
	if h := v.printed(t, "strange", kubevirtv1.StatusHibernated).Status.HibernationStatus; h == nil || h.Image == nil || h.Image.VMM != microVM {
		t.Errorf("the guest was saved by another VMM: %+v", h)
	}
	v.strategy(t, "strange", kubevirtv1.RunStrategyAlways)
	v.printed(t, "strange", kubevirtv1.StatusRunning)
	after := v.onMicroVM(t, "strange")
	if log := v.counts(t, after); strings.Contains(log, guest.UpLine) || after.UID == pod.UID {
		t.Errorf("the guest has booted anew, in pod %s: %.200s", after.Name, log)
	}
	v.refusedByMicroVM(t)
	v.agentRestarts(t, "strange", after)
	v.remove(t, machine(t, "strange", "", idle))
	v.noMachine(t, "strange")
	v.configure(t, `{"developerConfiguration":{"useEmulation":true}}`)
	v.agentsKnow(t, func(config string) bool { return !strings.Contains(config, microVM) })
	v.create(t, machine(t, "plain", kubevirtv1.RunStrategyAlways, idle))
	vmi := v.until(t, "plain", "one whose VMM is known", func(vmi *kubevirtv1.VirtualMachineInstance) bool {
		return vmi.Status.Phase == kubevirtv1.PhaseRunning && vmi.Status.VMM != nil
	})
	if vmi.Status.VMM.Name != spec.VMMQEMU {
		t.Errorf("after the stack a VM runs on %s", vmi.Status.VMM.Name)
	}
	v.remove(t, machine(t, "plain", "", idle))
	v.noMachine(t, "plain")
}

// stackWorks: the node has asked the image's driver, the KubeVirt object says what came of it, and admission
// refuses by the VM's field what its VMM has not.
func (v *installed) stackWorks(t *testing.T) {
	t.Helper()
	var kv kubevirtv1.KubeVirt
	v.eventually(t, func() bool {
		must(t, v.api.Get(v.ctx, client.ObjectKey{Namespace: "vmlet", Name: "kubevirt"}, &kv))
		s := kv.Status.VirtualizationStack
		return s != nil && s.Nodes == 1 && s.AnsweringNodes == 1 && isTrue(condition(kv.Status.Conditions, "VirtualizationStackReady")) &&
			slices.ContainsFunc(s.VMMs, func(m kubevirtv1.VirtualizationStackVMM) bool {
				return m.Name == microVM && m.WorkingNodes == 1 && m.Version != "" && m.Description != ""
			})
	}, func() string { return "the stack is " + text(&kv) })
	wrong := instance(t, "wrong", idle)
	wrong.Annotations = map[string]string{contract.AnnotationVMM: microVM}
	wrong.Spec.Domain.Devices.AutoattachPodInterface = new(false)
	wrong.Spec.Domain.Devices.Disks = []kubevirtv1.Disk{{Name: "scratch", Disk: &kubevirtv1.DiskTarget{Bus: kubevirtv1.DiskBusSATA}}}
	wrong.Spec.Volumes = []kubevirtv1.Volume{{Name: "scratch", EmptyDisk: &kubevirtv1.EmptyDiskSource{Capacity: resource.MustParse("1Mi")}}}
	v.eventually(t, func() bool {
		err := v.api.Create(v.ctx, wrong.DeepCopy(), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "disks[0]") && strings.Contains(err.Error(), "microvm has disks on virtio alone")
	}, func() string { return "a disk on a bus that microvm has not is admitted" })
}

// withoutNetwork is a VM as microvm can run it, which can be hibernated.
func withoutNetwork(vm *kubevirtv1.VirtualMachine) *kubevirtv1.VirtualMachine {
	s := &vm.Spec.Template.Spec
	s.Domain.Resources.Limits = nil
	s.Domain.Devices.AutoattachPodInterface = new(false)
	s.Volumes = []kubevirtv1.Volume{{Name: "scratch", EmptyDisk: &kubevirtv1.EmptyDiskSource{Capacity: resource.MustParse("1Mi")}}}
	vm.Spec.HibernateStrategy = &kubevirtv1.HibernateStrategy{Mode: kubevirtv1.HibernateSave, StorageClassName: new("local-path")}
	return vm
}

// onMicroVM: a VM that names neither image nor VMM has the stack's, and its guest runs.
func (v *installed) onMicroVM(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	vmi := v.until(t, name, "one whose VMM is known", func(vmi *kubevirtv1.VirtualMachineInstance) bool {
		return vmi.Status.Phase == kubevirtv1.PhaseRunning && vmi.Status.VMM != nil
	})
	if got := vmi.Status.VMM; got.Name != microVM || got.Hypervisor != spec.HypervisorEmulation || got.Version == "" {
		t.Errorf("the instance's VMM is %+v, want %s under %s", got, microVM, spec.HypervisorEmulation)
	}
	pod := v.podOf(t, vmi)
	if got := pod.Spec.Containers[0].Image; got != driverLauncher {
		t.Errorf("the VM runs in image %s, want %s", got, driverLauncher)
	}
	if disks := v.listed(t)[pod.UID].GetStatus().GetEffectiveSpec().GetDisks(); len(disks) != 1 || disks[0].GetBus() != spec.BusVirtio {
		t.Errorf("the guest's disks are %v, want one on the bus virtio", disks)
	}
	v.counts(t, pod)
	return pod
}

// refusedByMicroVM: what only the driver knows that its VMM can't do ends the VM's start, by the VM's field.
func (v *installed) refusedByMicroVM(t *testing.T) {
	t.Helper()
	networked := instance(t, "networked", idle)
	v.create(t, networked)
	failed := v.phase(t, "networked", kubevirtv1.PhaseFailed)
	if all := text(failed); !strings.Contains(all, "microvm has none here") || !strings.Contains(all, "spec.domain.devices.interfaces") && !strings.Contains(all, "networks") {
		t.Errorf("an instance with a network, which microvm has not, is %s", all)
	}
	v.remove(t, networked)
	v.noInstance(t, "networked")
}

// agentRestarts: the next agent finds the VM and its driver, which have gone on.
func (v *installed) agentRestarts(t *testing.T, name string, pod *corev1.Pod) {
	t.Helper()
	v.kubectl(t, "rollout", "restart", "daemonset/vmlet-agent", "-n", "vmlet")
	must(t, v.RolledOut(v.ctx, "vmlet", "daemonset/vmlet-agent"))
	v.pauses(t, name)
	if now := v.podOf(t, v.vmi(t, name)); now.UID != pod.UID {
		t.Errorf("the VM has another pod: %s", fmt.Sprint(now.Name))
	}
}
