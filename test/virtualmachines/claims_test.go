package virtualmachines_test

import (
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/test/cluster"
)

// testClaims: a VM waits for claims that aren't there, then for their volumes, which are made
// where it is scheduled; waits for a claim that another VM writes to, unless both share it; and leaves its claims behind.
func (v *installed) testClaims(t *testing.T) {
	must(t, v.StopComponent(cluster.LoopProvisioner)) // so that it can be seen waiting
	v.create(t, onClaims(t, "first", "files", "alone", "folder"))
	v.printed(t, "first", kubevirtv1.StatusErrorPVCNotFound)
	lacks := condition(v.phase(t, "first", kubevirtv1.PhasePending).Status.Conditions, kubevirtv1.ConditionSynchronized)
	if lacks == nil || lacks.Status != "False" || lacks.Reason != "FailedPvcNotFound" ||
		!strings.Contains(lacks.Message, "PersistentVolumeClaim files, alone, folder in namespace guests") {
		t.Errorf("of claims that aren't there the instance says %+v", lacks)
	}

	must(t, v.Apply(v.ctx, dynamic("files", "loop", "Filesystem", "ReadWriteOnce", "1Gi")+
		dynamic("alone", "loop", "Block", "ReadWriteOncePod", "32Mi")+
		dynamic("folder", "local-path", "Filesystem", "ReadWriteOnce", "16Mi")))
	v.printed(t, "first", kubevirtv1.StatusWaitingForVolumeBinding)
	must(t, v.StartComponent(v.ctx, cluster.LoopProvisioner))
	v.printed(t, "first", kubevirtv1.StatusRunning)
	volumes := v.phase(t, "first", kubevirtv1.PhaseRunning).Status.VolumeStatus
	for i, want := range []string{"1Gi", "32Mi", "16Mi"} {
		if got := volumes[i].PersistentVolumeClaimInfo.Capacity[corev1.ResourceStorage]; got.String() != want {
			t.Errorf("the instance says that volume %s has %s, want %s", volumes[i].Name, got.String(), want)
		}
	}

	v.create(t, onClaims(t, "second", "alone"))
	v.heldBy(t, "second", "claim alone is in use by VM first")
	before := v.claims(t)
	v.kubectl(t, "delete", "vm", "first", "-n", guests)
	v.noMachine(t, "first")
	v.printed(t, "second", kubevirtv1.StatusRunning)
	if got := v.claims(t); len(got) != 3 || !maps.Equal(got, before) {
		t.Errorf("with the VM deleted its claims are %v, and were %v", got, before)
	}
	v.remove(t, machine(t, "second", "", idle))
	v.noMachine(t, "second")
	v.sharesClaim(t)
	v.noClaims(t)
}

// sharesClaim: VMs whose disks on a claim are shareable run at once, and one whose disk is not waits for them.
func (v *installed) sharesClaim(t *testing.T) {
	must(t, v.Apply(v.ctx, dynamic("shared", "loop", "Block", "ReadWriteOnce", "32Mi")))
	for _, name := range []string{"left", "right"} {
		vm := onClaims(t, name, "shared")
		vm.Spec.Template.Spec.Domain.Devices.Disks[0].Shareable = new(true)
		v.create(t, vm)
	}
	v.printed(t, "left", kubevirtv1.StatusRunning)
	v.printed(t, "right", kubevirtv1.StatusRunning)
	v.create(t, onClaims(t, "greedy", "shared"))
	v.heldBy(t, "greedy", "claim shared is in use by VM ")
	for _, name := range []string{"greedy", "left", "right"} {
		v.remove(t, machine(t, name, "", idle))
	}
	for _, name := range []string{"greedy", "left", "right"} {
		v.noMachine(t, name)
	}
}

// heldBy waits until a VM's instance says that it waits for another VM's claim.
func (v *installed) heldBy(t *testing.T, name, why string) {
	t.Helper()
	var c *kubevirtv1.Condition
	v.eventually(t, func() bool {
		c = condition(v.phase(t, name, kubevirtv1.PhasePending).Status.Conditions, kubevirtv1.ConditionSynchronized)
		return c != nil && c.Reason == "ClaimInUse" && strings.Contains(c.Message, why)
	}, func() string { return fmt.Sprintf("%s says %+v, want ClaimInUse with %q", name, c, why) })
}

// testGrowing: claims have the data that guests wrote over a restart, and are larger in the
// guest once they have been expanded: the device itself, and disk.img on a file system that
// grows when it is mounted again.
func (v *installed) testGrowing(t *testing.T) {
	must(t, v.Apply(v.ctx, dynamic("files", "loop", "Filesystem", "ReadWriteOnce", "1Gi")+dynamic("device", "loop", "Block", "ReadWriteOnce", "32Mi")))
	vm := onClaims(t, "growing", "files", "device")
	boot := vm.Spec.Template.Spec.Domain.Firmware.KernelBoot
	boot.KernelArgs, boot.Container.Image = "console=ttyS0 quiet no_timer_check", linuxImage
	boot.Container.KernelPath, boot.Container.InitrdPath = "/boot/vmlinuz", "/boot/initrd"
	memory := resource.MustParse("128Mi")
	vm.Spec.Template.Spec.Domain.Memory.Guest = &memory
	v.create(t, vm)
	pod := v.podOf(t, v.phase(t, "growing", kubevirtv1.PhaseRunning))
	v.sizes(t, pod, 900<<20, 32<<20)
	v.ask(t, pod, "write /dev/vda in-files", "written 9 bytes")
	v.ask(t, pod, "write /dev/vdb in-device", "written 10 bytes")

	v.strategy(t, "growing", kubevirtv1.RunStrategyHalted)
	v.noInstance(t, "growing")
	for claim, size := range map[string]string{"files": "2Gi", "device": "64Mi"} {
		v.kubectl(t, "patch", "pvc/"+claim, "-n", guests, "--patch", `{"spec":{"resources":{"requests":{"storage":"`+size+`"}}}}`)
		volume := v.kubectl(t, "get", "pvc/"+claim, "-n", guests, "-o", "jsonpath={.spec.volumeName}")
		v.kubectl(t, "wait", "--timeout=24h", "--for=jsonpath={.spec.capacity.storage}="+size, "pv/"+volume)
	}
	v.kubectl(t, "wait", "--timeout=24h", "--for=condition=FileSystemResizePending", "pvc/files", "-n", guests)
	v.strategy(t, "growing", kubevirtv1.RunStrategyAlways)
	pod = v.podOf(t, v.phase(t, "growing", kubevirtv1.PhaseRunning))
	v.sizes(t, pod, 1800<<20, 64<<20)
	v.ask(t, pod, "cat /dev/vda", "in-files")
	v.ask(t, pod, "cat /dev/vdb", "in-device")
	v.remove(t, vm)
	v.noMachine(t, "growing")
	v.noClaims(t)
}

var disks = regexp.MustCompile(`disk vd[ab] (\d+) sectors`)

// sizes checks what a guest with two disks has of them: the first is at least as large, and not
// twice so, as a file system keeps some for itself; the second is as large. In bytes.
func (v *installed) sizes(t *testing.T, pod *corev1.Pod, files, device int64) {
	t.Helper()
	log := v.ask(t, pod, "lsblk", "lsblk 2")
	var got []int64
	for _, d := range disks.FindAllStringSubmatch(log, -1) {
		sectors, err := strconv.ParseInt(d[1], 10, 64)
		must(t, err)
		got = append(got, sectors*512)
	}
	if len(got) != 2 || got[0] < files || got[0] >= 2*files || got[1] != device {
		t.Errorf("the guest's disks have %d bytes, want %d or some more, and %d:\n%s", got, files, device, log)
	}
}

// onClaims is a VM whose disks are on claims.
func onClaims(t *testing.T, name string, claims ...string) *kubevirtv1.VirtualMachine {
	t.Helper()
	vm := machine(t, name, kubevirtv1.RunStrategyAlways, idle)
	s := &vm.Spec.Template.Spec
	for _, claim := range claims {
		s.Domain.Devices.Disks = append(s.Domain.Devices.Disks, kubevirtv1.Disk{
			Name: claim, Disk: &kubevirtv1.DiskTarget{Bus: kubevirtv1.DiskBusVirtio},
		})
		source := new(kubevirtv1.PersistentVolumeClaimSource)
		source.ClaimName = claim
		s.Volumes = append(s.Volumes, kubevirtv1.Volume{Name: claim, PersistentVolumeClaim: source})
	}
	return vm
}

// dynamic is a claim for which a volume is made when a pod has been scheduled that uses it.
func dynamic(name, class, mode, access, size string) string {
	return fmt.Sprintf(`
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s, namespace: %s}
spec: {accessModes: [%s], volumeMode: %s, storageClassName: %s, resources: {requests: {storage: %s}}}
`, name, guests, access, mode, class, size)
}

// claims are those that have a volume: the volumes' names by theirs.
func (v *installed) claims(t *testing.T) map[string]string {
	t.Helper()
	var all corev1.PersistentVolumeClaimList
	must(t, v.api.List(v.ctx, &all, client.InNamespace(guests)))
	bound := make(map[string]string)
	for _, c := range all.Items {
		if c.Status.Phase == corev1.ClaimBound && c.DeletionTimestamp == nil {
			bound[c.Name] = c.Spec.VolumeName
		}
	}
	return bound
}

// noClaims deletes all claims, and waits until their volumes are deleted.
func (v *installed) noClaims(t *testing.T) {
	t.Helper()
	bound := v.claims(t)
	v.kubectl(t, "delete", "pvc", "--all", "-n", guests, "--timeout=24h")
	for _, volume := range bound {
		v.kubectl(t, "wait", "--for=delete", "pv/"+volume, "--timeout=24h")
	}
}
