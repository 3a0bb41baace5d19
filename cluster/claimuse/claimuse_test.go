package claimuse

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/launcher"
	"github.com/vmlet/vmlet/contract"
)

// TestExcludes: a disk has one writer, or several that share it, and what is read nobody writes to.
func TestExcludes(t *testing.T) {
	writes, reads := Use{Claim: "a", Writes: true}, Use{Claim: "a"}
	shares, sharesReading := Use{Claim: "a", Writes: true, Shareable: true}, Use{Claim: "a", Shareable: true}
	for _, c := range []struct {
		name       string
		one, other Use
		want       bool
	}{
		{"two writers", writes, writes, true},
		{"writer and reader", writes, reads, true},
		{"two readers", reads, reads, false},
		{"two that share", shares, shares, false},
		{"one that shares and one that shares what it reads", shares, sharesReading, false},
		{"one that shares and a writer", shares, writes, true},
		{"one that shares and a reader", shares, reads, true},
		{"a reader and one that shares what it reads", reads, sharesReading, false},
		{"other claims", writes, Use{Claim: "b", Writes: true}, false},
	} {
		if got := c.one.Excludes(c.other); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if got := c.other.Excludes(c.one); got != c.want {
			t.Errorf("%s, the other way round: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestOfInstance: of a claim with several disks the use is that of all of them.
func TestOfInstance(t *testing.T) {
	vmi := new(kubevirtv1.VirtualMachineInstance)
	add := func(claim string, d kubevirtv1.Disk) {
		d.Name = string(rune('a' + len(vmi.Spec.Volumes)))
		v := kubevirtv1.Volume{Name: d.Name, DataVolume: &kubevirtv1.DataVolumeSource{Name: claim}}
		vmi.Spec.Volumes, vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Volumes, v), append(vmi.Spec.Domain.Devices.Disks, d)
	}
	yes := new(true)
	add("reads", kubevirtv1.Disk{CDROM: new(kubevirtv1.CDROMTarget)})
	add("shares", kubevirtv1.Disk{Shareable: yes})
	add("both", kubevirtv1.Disk{Shareable: yes, Disk: &kubevirtv1.DiskTarget{ReadOnly: true}})
	add("both", kubevirtv1.Disk{})
	vmi.Spec.Volumes = append(vmi.Spec.Volumes, kubevirtv1.Volume{Name: "no-disk", DataVolume: &kubevirtv1.DataVolumeSource{Name: "unused"}})
	want := []Use{{Claim: "reads"}, {Claim: "shares", Writes: true, Shareable: true}, {Claim: "both", Writes: true}}
	if got := OfInstance(vmi); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestOfPod: a pod writes to what it does not mount read-only, but for what it copies.
func TestOfPod(t *testing.T) {
	p := new(corev1.Pod)
	for _, v := range []struct {
		volume   string
		readOnly bool
	}{{"data", false}, {"base", true}, {launcher.VolumeSource, false}} {
		volume := corev1.Volume{Name: v.volume}
		volume.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.volume, ReadOnly: v.readOnly}
		p.Spec.Volumes = append(p.Spec.Volumes, volume)
	}
	for app, copies := range map[string]bool{contract.LabelAppLauncher: false, contract.LabelAppImporter: true} {
		p.Labels = map[string]string{contract.LabelApp: app}
		want := []Use{{Claim: "data", Writes: true}, {Claim: "base"}, {Claim: launcher.VolumeSource, Writes: !copies}}
		if got := OfPod(p, nil); !slices.Equal(got, want) {
			t.Errorf("%s: %+v, want %+v", app, got, want)
		}
	}
}

// TestUser: whose use is excluded uses the claim, by its instance where that is known, until it has ended.
func TestUser(t *testing.T) {
	copies, fills := Use{Claim: "a"}, Use{Claim: "a", Writes: true}
	const reads, writes = "uid-reads", "uid-writes"
	instances := []kubevirtv1.VirtualMachineInstance{*reader(reads, true), *reader(writes, false)}
	pod := func(app, uid string, change ...func(*corev1.Pod)) corev1.Pod {
		p := corev1.Pod{}
		p.Name, p.Finalizers = "p", []string{contract.FinalizerPod}
		p.Labels = map[string]string{contract.LabelApp: app, contract.LabelCreatedBy: uid}
		if app == contract.LabelAppLauncher {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstance", Name: "vm", UID: types.UID(uid), Controller: new(true)}}
		}
		v := corev1.Volume{Name: "disk"}
		v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "a"}
		p.Spec.Volumes = []corev1.Volume{v}
		for _, f := range change {
			f(&p)
		}
		return p
	}
	released := func(p *corev1.Pod) { p.Finalizers = nil }
	owner := func(change func(*metav1.OwnerReference)) func(*corev1.Pod) {
		return func(p *corev1.Pod) { change(&p.OwnerReferences[0]) }
	}
	orphaned := func(p *corev1.Pod) { p.OwnerReferences = nil }
	succeeded := func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
	source := func(p *corev1.Pod) { p.Spec.Volumes[0].Name = launcher.VolumeSource }
	other := func(p *corev1.Pod) { p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "b" }
	for _, c := range []struct {
		name           string
		p              corev1.Pod
		copied, filled bool // may be, meanwhile
	}{
		{"a VM that writes", pod(contract.LabelAppLauncher, writes), false, false},
		{"a VM that only reads", pod(contract.LabelAppLauncher, reads), true, false},
		{"a VM whose instance is gone", pod(contract.LabelAppLauncher, "uid-gone"), false, false},
		{"a VM that has ended", pod(contract.LabelAppLauncher, writes, released), true, true},
		{"a VM that has ended by the kubelet's word alone", pod(contract.LabelAppLauncher, writes, succeeded), false, false},
		{"another's pod that names a VM and has its label", pod(contract.LabelAppLauncher, reads, orphaned, released), false, false},
		{"the same, with an owner that controls nothing", pod(contract.LabelAppLauncher, reads, released, owner(func(o *metav1.OwnerReference) { o.Controller = nil })), false, false},
		{"the same, with an owner of another kind", pod(contract.LabelAppLauncher, reads, released, owner(func(o *metav1.OwnerReference) { o.Kind = "ReplicaSet" })), false, false},
		{"the same, with an owner of another group", pod(contract.LabelAppLauncher, reads, released, owner(func(o *metav1.OwnerReference) { o.APIVersion = "example.org/v1" })), false, false},
		{"the same, with another VM as its owner", pod(contract.LabelAppLauncher, reads, released, owner(func(o *metav1.OwnerReference) { o.UID = writes })), false, false},
		{"the same, that has ended", pod(contract.LabelAppLauncher, reads, orphaned, released, succeeded), true, true},
		{"a VM's pod without its owner", pod(contract.LabelAppLauncher, writes, orphaned), false, false},
		{"another's pod that names a VM", pod("nginx", reads), false, false},
		{"another's pod that has ended", pod("nginx", "", succeeded), true, true},
		{"a pod that fills it", pod(contract.LabelAppImporter, ""), false, false},
		{"a pod that copies it", pod(contract.LabelAppImporter, "", source), true, false},
		{"a VM of another claim", pod(contract.LabelAppLauncher, writes, other), true, true},
	} {
		if got := User([]corev1.Pod{c.p}, instances, copies) == ""; got != c.copied {
			t.Errorf("%s: it may be copied: %v, want %v", c.name, got, c.copied)
		}
		if got := User([]corev1.Pod{c.p}, instances, fills) == ""; got != c.filled {
			t.Errorf("%s: it may be filled: %v, want %v", c.name, got, c.filled)
		}
	}
}

// reader is an instance with a disk on the claim "a".
func reader(uid types.UID, readOnly bool) *kubevirtv1.VirtualMachineInstance {
	vmi := new(kubevirtv1.VirtualMachineInstance)
	vmi.UID = uid
	vmi.Spec.Domain.Devices.Disks = []kubevirtv1.Disk{{Name: "disk", Disk: &kubevirtv1.DiskTarget{ReadOnly: readOnly}}}
	vmi.Spec.Volumes = []kubevirtv1.Volume{{Name: "disk", DataVolume: &kubevirtv1.DataVolumeSource{Name: "a"}}}
	return vmi
}

// TestLocks: pods that exclude each other are not made at the same time, others are.
func TestLocks(t *testing.T) {
	var l Locks
	write := func(claims ...string) (uses []Use) {
		for _, claim := range claims {
			uses = append(uses, Use{Claim: claim, Writes: true})
		}
		return uses
	}
	done, alone := l.Begin("shop", append(write("a", "b"), Use{Claim: "golden"}))
	if !alone {
		t.Fatal("nobody has a claim")
	}
	for _, c := range []struct {
		namespace string
		uses      []Use
		alone     bool
	}{
		{"shop", write("c", "b"), false}, {"shop", write("c"), true}, {"other", write("a"), true}, {"shop", nil, true},
		{"shop", []Use{{Claim: "golden"}}, true}, {"shop", write("golden"), false}, {"shop", []Use{{Claim: "a"}}, false},
	} {
		other, alone := l.Begin(c.namespace, c.uses)
		if alone != c.alone {
			t.Errorf("%s %+v: alone %v, want %v", c.namespace, c.uses, alone, c.alone)
		}
		if alone {
			other()
		}
	}
	done()
	if _, alone := l.Begin("shop", write("b", "a")); !alone {
		t.Error("the claims were not given back")
	}
}
