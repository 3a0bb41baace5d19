package convert

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/multus"
	"github.com/vmlet/vmlet/contract"
)

// withObjects is an instance with Secrets, a claim, an image and a network of Multus.
func withObjects(t *testing.T) *kubevirtv1.VirtualMachineInstanceSpec {
	s := withDevices(t)
	secret := func(name string) *corev1.LocalObjectReference { return &corev1.LocalObjectReference{Name: name} }
	s.Volumes = append(s.Volumes, kubevirtv1.Volume{Name: "ci", CloudInitConfigDrive: &kubevirtv1.CloudInitSource{
		UserDataSecretRef: secret("user"), NetworkDataSecretRef: secret("net"),
	}})
	s.Volumes = append(s.Volumes, kubevirtv1.Volume{Name: "root", DataVolume: &kubevirtv1.DataVolumeSource{Name: "web-root"}},
		kubevirtv1.Volume{Name: "cd", ContainerDisk: &kubevirtv1.ContainerDiskSource{Image: "registry/cd:1"}})
	s.Networks = append(s.Networks, kubevirtv1.Network{Name: "vlan", Multus: &kubevirtv1.MultusNetwork{NetworkName: "default/vlan2013"}})
	return s
}

// TestFaultsText: what a node says in parts names the instance's own fields and objects, and leaves out what is for the
// node's administrator.
func TestFaultsText(t *testing.T) {
	s := withObjects(t)
	made := multus.Interface(&s.Networks[1])
	for want, faults := range map[string][]contract.Fault{
		"": nil,
		"spec.domain.devices.disks[1].serial: no\nspec.domain.cpu.model: no avx512, or set the annotation vmlet.io/vmm: qemu": {
			{Field: "disks[1].serial", Text: "no"}, {Field: "cpu.model", Text: "no avx512", UseVMM: "qemu"},
		},
		"spec.domain.memory.hugepages.pageSize: restore it eagerly": {{Field: "memory.hugePages", Text: "restore it eagerly", Advice: "without --lazy"}},
		"volume d: another process has it open":                     {{Object: contract.DisksFolder + "/d", Text: "another process has it open", Advice: "fuser names it"}},
		"no KVM":                                                    {{Text: "no KVM"}},
		"Multus has made no interface for spec.networks[1], default/vlan2013: see whether Multus runs on the node, and the pod's events": {
			{Reason: contract.FaultNoInterface, Object: made, Text: "interface " + made + " of the pod: there is no interface " + made},
		},
		"there is no interface eth0": {{Reason: contract.FaultNoInterface, Object: "eth0", Text: "there is no interface eth0"}},
		"spec.domain.firmware.kernelBoot.container.kernelPath: the image of kernelBoot: QEMU can't boot it": {
			{Field: "boot.kernel.path", Object: "/var/run/vmlet/sockets/boot.kernel.sock", Text: "/var/run/vmlet/sockets/boot.kernel.sock: QEMU can't boot it"},
		},
		"does it fit? spec.domain.memory.guest says how much, and spec.domain.memory.hugepages.pageSize": {
			{Text: "does it fit? memory.size says how much, and memory.hugePages", Fields: []string{"memory", "memory.size", "memory.hugePages"}},
		},
		"want a kernel (spec.domain.firmware.kernelBoot), or set the annotation vmlet.io/vmm: qemu": {
			{Text: "want a kernel (boot.kernel)", Fields: []string{"boot.kernel"}, UseVMM: "qemu"},
		},
		"spec.domain.memory.guest: 1Gi is too much": {{Field: "memory", Text: "1Gi is too much"}},
		"out of memory: the kernel killed cpu.max in system.slice at v1.2": {
			{Text: "out of memory: the kernel killed cpu.max in system.slice at v1.2"},
		},
		"spec.volumes[1]: claim web-root has changed since the save (size); put it back": {
			{Field: "disks[1].path", Object: "/var/run/vmlet/disks/root/disk.img", Text: "/var/run/vmlet/disks/root/disk.img has changed since the save (size); put it back"},
		},
		"spec.domain.machine.type: microvm can't: use q35, or set hibernateStrategy.mode: Save": {
			{Reason: contract.FaultSaveInstead, Field: "machineType", Text: "microvm can't: use q35", Advice: "or save the VM instead"},
		},
		"spec.domain.features.hypervPassthrough: not saved, or set hibernateStrategy.mode: SuspendToDisk": {
			{Reason: contract.FaultSuspendInstead, Field: "features.hyperv.passthrough", Text: "not saved"},
		},
		`spec.volumes[2]: /a, disk "root", is block device 253:3 with disk "data" of VM other-db, which runs`: {
			{Field: "disks[0].path", Object: "/a", OtherVM: "a/virt-launcher-other-db-abcdef0123", Text: `/a, disk "root", is block device 253:3 with disk "data" of vm a/virt-launcher-other-db-abcdef0123, which runs`},
		},
		"as has web, which runs": {{OtherVM: "web", Text: "as has web, which runs"}},
		"claim web-root: another process has it open: end that first, saying: no": {
			{Object: "/dev/vmlet/root", Text: "/dev/vmlet/root: another process has it open: end that first, saying: no"},
		},
		"claim web-root: volume root: it has no disk.img": {{Object: "/var/run/vmlet/disks/root", Text: "volume root: it has no disk.img"}},
		"read base.qcow2 on claim web-root: I/O error":    {{Object: "/var/run/vmlet/disks/root/base.qcow2", Text: "read /var/run/vmlet/disks/root/base.qcow2: I/O error"}},
		"image registry/cd:1.":                            {{Object: "/var/run/vmlet/sockets/cd.sock", Text: "/var/run/vmlet/sockets/cd.sock."}},
		"no overlay of image registry/cd:1":               {{Object: "/var/run/vmlet/made/cd.qcow2", Text: "no overlay of /var/run/vmlet/made/cd.qcow2"}},
		"volume c":                                        {{Object: "/var/run/vmlet/made/c.iso", Text: "/var/run/vmlet/made/c.iso"}},
		"volume gone":                                     {{Object: "/var/run/vmlet/disks/gone/x", Text: "/var/run/vmlet/disks/gone/x"}},
		"memory image restore-web-20260102T030405Z: not there": {
			{Object: "/var/run/vmlet/hibernation/restore-web-20260102T030405Z/memory", Text: "/var/run/vmlet/hibernation/restore-web-20260102T030405Z/memory: not there"},
		},
		"the claim for the guest's memory: no room": {{Object: "/var/run/vmlet/hibernation", Text: "/var/run/vmlet/hibernation: no room"}},
		"Secret ada: too long":                      {{Object: "/var/run/vmlet/keys/ada/id.pub", Text: "/var/run/vmlet/keys/ada/id.pub: too long"}},
		"open a file of the VM's pod: no":           {{Object: "/var/run/vmlet/vm.json", Text: "open /var/run/vmlet/vm.json: no"}},
		"open /etc/passwd: no":                      {{Object: "/etc/passwd", Text: "open /etc/passwd: no"}},
		"/srv/a: full":                              {{Object: "/srv/a", Text: "full"}},
		"volume ci: network data: Secret net has no key networkdata": {
			{Object: "/var/run/vmlet/disks/ci/networkdata", Text: "volume ci: network data: /var/run/vmlet/disks/ci/networkdata has no key networkdata"},
		},
		"volume ci: user data: Secret user is too large": {
			{Object: "/var/run/vmlet/disks/ci/userdata/userdata", Text: "volume ci: user data: /var/run/vmlet/disks/ci/userdata/userdata is too large"},
		},
	} {
		if got := FaultsText(faults, s); got != want {
			t.Errorf("%+v:\n got %q\nwant %q", faults, got, want)
		}
	}
}
