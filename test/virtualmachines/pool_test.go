package virtualmachines_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	poolv1 "github.com/vmlet/vmlet/api/pool/v1beta1"
)

// testPool: a pool is scaled as a Deployment is; what is kept of members comes back to those of their names: disks,
// and memory; a changed template reaches all, a few at a time; one that was deleted is replaced, and one that was
// detached is left alone.
func (v *installed) testPool(t *testing.T) {
	p := v.newPool(t, "web")
	v.create(t, p)
	v.available(t, "web", 2)
	if got := v.members(t, "web"); !slices.Equal(slices.Sorted(maps.Keys(got)), []string{"web-0", "web-1"}) {
		t.Fatalf("its VMs are %v", got)
	}
	selector := v.kubectl(t, "get", "vmpool/web", "-n", guests, "-o", "jsonpath={.status.labelSelector}")
	if got := v.kubectl(t, "get", "pods", "-n", guests, "-l", selector, "-o", "name"); strings.Count(got, "virt-launcher-web-") != 2 {
		t.Errorf("autoscalers find by %q the pods %q, want those of both VMs", selector, got)
	}
	v.poolRefusals(t)
	v.replicaSet(t)
	v.poolDisks(t)
	v.poolMemory(t)
	v.poolUpdate(t)
	v.poolMembers(t)
	v.poolBudget(t)
	v.poolStandby(t)

	v.kubectl(t, "delete", "vmpool", "web", "-n", guests)
	for _, name := range []string{"web-0", "web-1", "web-2", "web-3"} {
		v.noMachine(t, name)
	}
	v.eventually(t, func() bool { return len(v.claims(t)) == 0 }, func() string { return fmt.Sprintf("of a pool that is deleted there are %v", v.claims(t)) })
	v.noClaims(t)
}

// newPool is one of two idle VMs with a disk each.
func (v *installed) newPool(t *testing.T, name string) *poolv1.VirtualMachinePool {
	t.Helper()
	p := &poolv1.VirtualMachinePool{}
	p.Namespace, p.Name = guests, name
	must(t, yaml.UnmarshalStrict([]byte(`
replicas: 2
selector: {matchLabels: {pool: web}}
maxUnavailable: 1
scaleInStrategy: {proactive: {statePreservation: Offline, selectionPolicy: {sortPolicy: DescendingOrder}}}
updateStrategy: {proactive: {selectionPolicy: {sortPolicy: AscendingOrder}}}
virtualMachineTemplate:
  metadata: {labels: {pool: web}}
  spec:
    runStrategy: Always
    hibernateStrategy: {mode: Save, storageClassName: local-path}
    dataVolumeTemplates:
    - metadata: {name: data}
      spec:
        source: {blank: {}}
        storage: {storageClassName: local-path, accessModes: [ReadWriteOnce], resources: {requests: {storage: 16Mi}}}
`), &p.Spec))
	template := machine(t, name, kubevirtv1.RunStrategyAlways, idle).Spec.Template
	template.Spec.Domain.Devices.Disks = []kubevirtv1.Disk{{Name: "data"}}
	template.Spec.Volumes = []kubevirtv1.Volume{{Name: "data", DataVolume: &kubevirtv1.DataVolumeSource{Name: "data"}}}
	p.Spec.VirtualMachineTemplate.Spec.Template = template
	return p
}

// members are the pool's VMs by name.
func (v *installed) members(t *testing.T, name string) map[string]*kubevirtv1.VirtualMachine {
	t.Helper()
	var all kubevirtv1.VirtualMachineList
	must(t, v.api.List(v.ctx, &all, client.InNamespace(guests)))
	of := make(map[string]*kubevirtv1.VirtualMachine)
	for i := range all.Items {
		if owner := metav1.GetControllerOf(&all.Items[i]); owner != nil && owner.Kind == poolv1.Kind && owner.Name == name {
			of[all.Items[i].Name] = &all.Items[i]
		}
	}
	return of
}

// disks are the volumes of the pool's VMs by claim, but for those of their memory.
func (v *installed) disks(t *testing.T) map[string]string {
	t.Helper()
	all := v.claims(t)
	maps.DeleteFunc(all, func(name, _ string) bool { return !strings.HasPrefix(name, "data-") })
	return all
}

// available waits until just so many members are up with the newest template.
func (v *installed) available(t *testing.T, name string, n int32) *poolv1.VirtualMachinePool {
	t.Helper()
	p := &poolv1.VirtualMachinePool{}
	v.eventually(t, func() bool {
		must(t, v.api.Get(v.ctx, types.NamespacedName{Namespace: guests, Name: name}, p))
		ready := int32(0) // as the pool's status may be older than what the test did to a member
		for _, vm := range v.members(t, name) {
			if vm.DeletionTimestamp == nil && vm.Status.Ready {
				ready++
			}
		}
		s := p.Status
		return s.ObservedGeneration == p.Generation && s.Replicas == n && s.AvailableReplicas == n && ready == n
	}, func() string { return fmt.Sprintf("pool %s has not %d VMs that are available: %s", name, n, text(p)) })
	return p
}

func (v *installed) scalePool(t *testing.T, n int32) *poolv1.VirtualMachinePool {
	t.Helper()
	v.kubectl(t, "scale", "vmpool/web", "-n", guests, fmt.Sprintf("--replicas=%d", n))
	return v.available(t, "web", n)
}

// poolRefusals: what can't be is refused by the path of the pool's own field.
func (v *installed) poolRefusals(t *testing.T) {
	for patch, want := range map[string]string{
		`{"spec":{"selector":{"matchLabels":{"pool":"other"}}}}`:                                       "spec.selector",
		`{"spec":{"maxUnavailable":0}}`:                                                                "spec.maxUnavailable",
		`{"spec":{"scaleInStrategy":{"unmanaged":{}}}}`:                                                "spec.scaleInStrategy",
		`{"spec":{"virtualMachineTemplate":{"spec":{"template":{"spec":{"hostname":"not a name"}}}}}}`: "spec.virtualMachineTemplate.spec.template.spec.hostname",
	} {
		if out, err := v.Kubectl(v.ctx, "patch", "vmpool/web", "-n", guests, "--type=merge", "--dry-run=server", "--patch", patch); err == nil || !strings.Contains(err.Error()+out, want) {
			t.Errorf("%s: %v %s, want it refused for %s", patch, err, out, want)
		}
	}
}

// poolDisks: a member that is scaled in leaves its disk, which the next one of its name gets.
func (v *installed) poolDisks(t *testing.T) {
	before := v.disks(t)
	v.scalePool(t, 1)
	v.noMachine(t, "web-1")
	p := v.available(t, "web", 1)
	if kept := p.Status.Preserved; len(kept) != 1 || kept[0].Index != 1 || kept[0].State != poolv1.PreserveDisks || !slices.Equal(kept[0].Claims, []string{"data-1"}) {
		t.Errorf("the pool keeps %+v, want the disk of member 1", kept)
	}
	if got := v.disks(t); !maps.Equal(got, before) {
		t.Errorf("scaled in, there are the claims %v of %v", got, before)
	}
	p = v.scalePool(t, 2)
	if got := v.disks(t); !maps.Equal(got, before) || len(p.Status.Preserved) != 0 {
		t.Errorf("scaled out, there are the claims %v of %v, and the pool keeps %+v", got, before, p.Status.Preserved)
	}
	var claim corev1.PersistentVolumeClaim
	must(t, v.api.Get(v.ctx, types.NamespacedName{Namespace: guests, Name: "data-1"}, &claim))
	if vm := v.members(t, "web")["web-1"]; !metav1.IsControlledBy(&claim, vm) {
		t.Errorf("the disk of %s belongs to %+v", vm.Name, claim.OwnerReferences)
	}
}

// poolMemory: a member that is scaled in hibernates, and goes on when it is needed again.
func (v *installed) poolMemory(t *testing.T) {
	v.kubectl(t, "patch", "vmpool/web", "-n", guests, "--type=merge", "--patch", `{"spec":{"scaleInStrategy":{"proactive":{"statePreservation":"Online"}}}}`)
	before := v.members(t, "web")["web-1"]
	p := v.scalePool(t, 1)
	if kept := p.Status.Preserved; len(kept) != 1 || kept[0].Name != "web-1" || kept[0].State != poolv1.PreserveMemory {
		t.Errorf("the pool keeps %+v, want the memory of member 1", kept)
	}
	v.printed(t, "web-1", kubevirtv1.StatusHibernated)
	v.scalePool(t, 2)
	vmi := v.phase(t, "web-1", kubevirtv1.PhaseRunning)
	if after := v.members(t, "web")["web-1"]; after.UID != before.UID || vmi.Spec.RestoreFrom == nil {
		t.Errorf("VM %s was %s; its instance goes on from %+v, want the same VM with its memory", after.UID, before.UID, vmi.Spec.RestoreFrom)
	}
}

// poolUpdate: what can be changed while a guest runs is, all else by restarts, one at a time.
func (v *installed) poolUpdate(t *testing.T) {
	before := make(map[string]types.UID)
	for name := range v.members(t, "web") {
		before[name] = v.vmi(t, name).UID
	}
	v.kubectl(t, "patch", "vmpool/web", "-n", guests, "--type=merge", "--patch", `{"spec":{"virtualMachineTemplate":{"metadata":{"labels":{"tier":"front"}}}}}`)
	p := v.available(t, "web", 2)
	for name, vm := range v.members(t, "web") {
		if vm.Labels["tier"] != "front" || v.vmi(t, name).UID != before[name] {
			t.Errorf("%s has labels %v, and its instance is %s, which was %s", name, vm.Labels, v.vmi(t, name).UID, before[name])
		}
	}
	revision := p.Status.UpdateRevision
	v.kubectl(t, "patch", "vmpool/web", "-n", guests, "--type=merge", "--patch", `{"spec":{"virtualMachineTemplate":{"spec":{"template":{"spec":{"domain":{"memory":{"guest":"40Mi"}}}}}}}}`)
	least := int32(2)
	v.eventually(t, func() bool {
		must(t, v.api.Get(v.ctx, types.NamespacedName{Namespace: guests, Name: "web"}, p))
		least = min(least, p.Status.ReadyReplicas)
		s := p.Status
		return s.UpdateRevision != revision && s.ObservedGeneration == p.Generation && s.AvailableReplicas == 2
	}, func() string { return "the pool is not updated: " + text(p) })
	if least < 1 {
		t.Errorf("at times %d VMs were ready, want one at least", least)
	}
	for name := range v.members(t, "web") {
		if vmi := v.vmi(t, name); vmi.UID == before[name] || vmi.Spec.Domain.Memory.Guest.String() != "40Mi" {
			t.Errorf("%s has %v of memory in instance %s, which was %s", name, vmi.Spec.Domain.Memory.Guest, vmi.UID, before[name])
		}
	}
}

// replicaSet: a set of instances is scaled, and replaces one that is deleted.
func (v *installed) replicaSet(t *testing.T) {
	set := &kubevirtv1.VirtualMachineInstanceReplicaSet{}
	set.Namespace, set.Name = guests, "workers"
	set.Spec.Replicas = new(int32(1))
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "workers"}}
	set.Spec.Template = machine(t, "workers", kubevirtv1.RunStrategyAlways, idle).Spec.Template
	set.Spec.Template.Labels = map[string]string{"app": "workers"}
	v.create(t, set)
	names := func(n int) (all []string) {
		t.Helper()
		v.eventually(t, func() bool {
			must(t, v.api.Get(v.ctx, client.ObjectKeyFromObject(set), set))
			all = strings.Fields(v.kubectl(t, "get", "vmi", "-n", guests, "-l", set.Status.LabelSelector, "-o", "jsonpath={.items[*].metadata.name}"))
			return len(all) == n && int(set.Status.Replicas) == n && int(set.Status.ReadyReplicas) == n
		}, func() string { return fmt.Sprintf("there are the instances %v, want %d: %s", all, n, text(set)) })
		return all
	}
	first := names(1)
	v.kubectl(t, "scale", "vmirs/workers", "-n", guests, "--replicas=2")
	names(2)
	v.kubectl(t, "delete", "vmi", first[0], "-n", guests)
	if got := names(2); slices.Contains(got, first[0]) {
		t.Errorf("the instances are %v, want another one for %s", got, first[0])
	}
	v.kubectl(t, "delete", "vmirs", "workers", "-n", guests)
	v.eventually(t, func() bool {
		return v.kubectl(t, "get", "vmi", "-n", guests, "-l", "app=workers", "-o", "name") == ""
	}, func() string { return "instances are left of a set that is deleted" })
}

// poolBudget: a drain leaves as many VMs as an update does, and a user's budget takes the place of the pool's.
func (v *installed) poolBudget(t *testing.T) {
	v.scalePool(t, 2)
	budget := func(want string) {
		t.Helper()
		got := ""
		v.eventually(t, func() bool {
			got = v.kubectl(t, "get", "pdb", "-n", guests, "-o", "jsonpath={range .items[*]}{.metadata.name} {.spec.minAvailable} {.status.disruptionsAllowed};{end}")
			return got == want
		}, func() string { return fmt.Sprintf("the budgets are %q, want %q", got, want) })
	}
	budget("web-pool 1 1;")
	v.kubectl(t, "create", "pdb", "mine", "-n", guests, "--selector=vmlet.io/pool", "--min-available=0")
	budget("mine 0 2;")
	v.kubectl(t, "delete", "pdb", "mine", "-n", guests)
	budget("web-pool 1 1;")
	v.scalePool(t, 1)
	budget("")
}

// poolStandby: a VM that stands by boots once, serves nobody, is no replica, is taken first with its memory, and is
// made again.
func (v *installed) poolStandby(t *testing.T) {
	v.kubectl(t, "patch", "vmpool/web", "-n", guests, "--type=merge", "--patch", `{"spec":{
		"scaleInStrategy":{"proactive":{"statePreservation":"Disabled"}}, "preservation":{"maxPreserved":0},
		"standby":{"replicas":1,"initialDelaySeconds":1}}}`) // what is preserved would be taken first
	ready := func() *poolv1.VirtualMachinePool {
		p := &poolv1.VirtualMachinePool{}
		v.eventually(t, func() bool {
			must(t, v.api.Get(v.ctx, types.NamespacedName{Namespace: guests, Name: "web"}, p))
			for name, vm := range v.members(t, "web") {
				var pods corev1.PodList
				if vm.Labels["vmlet.io/pool-standby"] == "" {
					continue
				}
				must(t, v.api.List(v.ctx, &pods, client.InNamespace(guests), client.MatchingLabels{"vmlet.io/pool-standby": "Hibernated"}))
				for _, pod := range pods.Items {
					if podReady(&pod) {
						t.Errorf("the pod of %s, which stands by, is ready", name)
					}
				}
			}
			return p.Status.ReadyStandbyReplicas == 1
		}, func() string { return "no VM stands by: " + text(p) })
		return p
	}
	p := ready()
	if p.Status.Replicas != 1 {
		t.Errorf("the pool has %d replicas beside the one that stands by, want 1", p.Status.Replicas)
	}
	var name string
	for n, vm := range v.members(t, "web") {
		if vm.Labels["vmlet.io/pool-standby"] != "" {
			name = n
		}
	}
	before := v.vm(t, name)
	v.scalePool(t, 2)
	vmi := v.phase(t, name, kubevirtv1.PhaseRunning)
	if after := v.vm(t, name); after.UID != before.UID || after.Labels["vmlet.io/pool-standby"] != "" || vmi.Spec.RestoreFrom == nil {
		t.Errorf("VM %s was taken as %s with labels %v, going on from %+v; want the one that stood by, with its memory", name, after.UID, after.Labels, vmi.Spec.RestoreFrom)
	}
	ready()
	v.poolStandbyRuns(t)
	v.kubectl(t, "patch", "vmpool/web", "-n", guests, "--type=merge", "--patch", `{"spec":{"standby":null}}`)
	v.scalePool(t, 1)
	v.eventually(t, func() bool { return len(v.members(t, "web")) == 1 }, func() string {
		return fmt.Sprintf("the pool has the VMs %v", slices.Sorted(maps.Keys(v.members(t, "web"))))
	})
}

// poolStandbyRuns: a VM that stands by while it runs is paused, its pod serves nobody, and is the very pod that serves when
// the VM is taken.
func (v *installed) poolStandbyRuns(t *testing.T) {
	v.kubectl(t, "patch", "vmpool/web", "-n", guests, "--type=merge", "--patch", `{"spec":{"standby":{"state":"Running"}}}`)
	v.scalePool(t, 1)
	var name string
	v.eventually(t, func() bool {
		for n, vm := range v.members(t, "web") {
			if vm.Labels["vmlet.io/pool-standby"] == "Running" && vm.Status.PrintableStatus == kubevirtv1.StatusPaused {
				name = n
			}
		}
		return name != ""
	}, func() string { return "no VM stands by while it runs" })
	before := v.podOf(t, v.vmi(t, name))
	if podReady(before) {
		t.Errorf("the pod of %s, which stands by, is ready: %s", name, text(before))
	}
	p := &poolv1.VirtualMachinePool{}
	v.eventually(t, func() bool {
		must(t, v.api.Get(v.ctx, types.NamespacedName{Namespace: guests, Name: "web"}, p))
		return p.Status.ReadyStandbyReplicas == 1 && p.Status.Replicas == 1
	}, func() string { return "the pool's status is " + text(p) })
	v.scalePool(t, 2)
	var after *corev1.Pod
	v.eventually(t, func() bool {
		after = v.podOf(t, v.vmi(t, name))
		return after.UID == before.UID && after.Labels["vmlet.io/pool-standby"] == "" && podReady(after)
	}, func() string {
		return fmt.Sprintf("VM %s was in pod %s, and is taken in %s", name, before.UID, text(after))
	})
}

// poolMembers: a member that a user deletes is made again with a new disk; one that is detached is replaced
// under another name, and runs on.
func (v *installed) poolMembers(t *testing.T) {
	before, disks := v.members(t, "web"), v.disks(t)
	v.kubectl(t, "delete", "vm/web-0", "-n", guests)
	v.eventually(t, func() bool {
		vm := v.members(t, "web")["web-0"]
		return vm != nil && vm.UID != before["web-0"].UID
	}, func() string { return "VM web-0 is not replaced" })
	v.available(t, "web", 2)
	if now := v.disks(t); now["data-0"] == disks["data-0"] || now["data-1"] != disks["data-1"] {
		t.Errorf("the disks are %v, and were %v", now, disks)
	}
	instance := v.vmi(t, "web-0").UID
	v.kubectl(t, "patch", "vm/web-0", "-n", guests, "--type=json", "--patch", `[{"op":"remove","path":"/metadata/ownerReferences"}]`)
	v.available(t, "web", 2)
	v.eventually(t, func() bool { return v.members(t, "web")["web-2"] != nil }, func() string { return "the detached VM is not replaced" })
	v.available(t, "web", 2)
	if vm := v.vm(t, "web-0"); v.vmi(t, "web-0").UID != instance || vm.Labels["vmlet.io/pool"] != "" {
		t.Errorf("the detached VM has labels %v, and its instance is %s, which was %s", vm.Labels, v.vmi(t, "web-0").UID, instance)
	}
	v.kubectl(t, "delete", "vm/web-0", "-n", guests)
	v.noMachine(t, "web-0")
	v.kubectl(t, "scale", "vmpool/web", "-n", guests, "--replicas=1")
	v.available(t, "web", 1)
}

func podReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
