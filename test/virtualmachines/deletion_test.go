package virtualmachines_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// testDeletion: whatever of a VM is deleted, by whomever, the rest follows, and a VM that is
// to run always runs again: see neverTwice.
func (v *installed) testDeletion(t *testing.T) {
	always := kubevirtv1.RunStrategyAlways
	lasting := machine(t, "lasting", always, stubborn)
	grace := int64(4) // time to run twice, if it were to
	lasting.Spec.Template.Spec.TerminationGracePeriodSeconds = &grace
	v.create(t, machine(t, "deleted", always, idle), machine(t, "replaced", always, idle), lasting)

	vm := v.printed(t, "deleted", kubevirtv1.StatusRunning)
	vmi := v.vmi(t, "deleted")
	v.kubectl(t, "delete", "vm", "deleted", "-n", guests)
	if vmi := v.vmi(t, "deleted"); vmi != nil {
		t.Errorf("the VM is gone, and its instance is not: %s", text(vmi))
	}
	v.eventually(t, func() bool { return v.podOf(t, vmi) == nil && len(v.revisions(t, vm)) == 0 },
		func() string { return "the VM is gone, and its pod or its ControllerRevision is not" })

	first := v.phase(t, "replaced", kubevirtv1.PhaseRunning)
	v.kubectl(t, "delete", "vmi", "replaced", "-n", guests)
	second := v.another(t, first)
	v.kubectl(t, "delete", "pod", v.podOf(t, second).Name, "-n", guests)
	v.another(t, second)

	first = v.phase(t, "lasting", kubevirtv1.PhaseRunning)
	pod := v.podOf(t, first)
	v.kubectl(t, "delete", "pod", pod.Name, "-n", guests, "--force", "--grace-period=0", "--wait=false")
	v.another(t, first)
	if vm := v.listed(t)[pod.UID]; vm != nil && vm.GetStatus().GetProcess().GetVmmPid() != 0 {
		t.Errorf("the VM runs again, and the agent still has the one of the pod that was deleted: %v", vm.GetStatus())
	}
	v.remove(t, machine(t, "replaced", "", idle), lasting)
}

// testHurriedDeletion: a VM whose guest doesn't shut down, and has an hour for it, is gone soon after its
// deletion once somebody stops it by force (virtctl stop NAME --force --grace-period=0), whatever its run strategy.
func (v *installed) testHurriedDeletion(t *testing.T) {
	admin := v.visitor(t, "")
	names := map[string]kubevirtv1.RunStrategy{
		"hurried-always": kubevirtv1.RunStrategyAlways, "hurried-once": kubevirtv1.RunStrategyOnce, "hurried-rerun": kubevirtv1.RunStrategyRerunOnFailure,
	}
	for name, strategy := range names {
		vm := machine(t, name, strategy, stubborn)
		vm.Spec.Template.Spec.TerminationGracePeriodSeconds = new(int64(3600))
		v.create(t, vm)
	}
	for name := range names {
		v.printed(t, name, kubevirtv1.StatusRunning)
		v.kubectl(t, "delete", "vm", name, "-n", guests, "--wait=false")
	}
	for name := range names {
		v.printed(t, name, kubevirtv1.StatusTerminating)
		admin.put(t, fmt.Sprintf("/apis/subresources.kubevirt.io/v1/namespaces/%s/virtualmachines/%s/stop", guests, name), `{"gracePeriod":0}`, 202, "")
	}
	for name := range names {
		v.noMachine(t, name)
	}
}

// testNamespace: a namespace goes with the VM that runs in it.
func (v *installed) testNamespace(t *testing.T) {
	ns := &corev1.Namespace{}
	ns.Name = "leaving"
	vm := machine(t, "running", kubevirtv1.RunStrategyAlways, idle)
	vm.Namespace = ns.Name
	v.create(t, ns, vm)
	v.eventually(t, func() bool {
		vm = get(t, v, ns.Name, vm.Name, new(kubevirtv1.VirtualMachine))
		return vm.Status.PrintableStatus == kubevirtv1.StatusRunning
	}, func() string { return fmt.Sprintf("VM %s does not run: %s", vm.Name, text(vm)) })
	v.remove(t, ns)
	v.eventually(t, func() bool { return get(t, v, "", ns.Name, new(corev1.Namespace)) == nil },
		func() string {
			return "the namespace is still there: " + text(get(t, v, "", ns.Name, new(corev1.Namespace)))
		})
}
