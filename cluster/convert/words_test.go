package convert

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/multus"
	"github.com/vmlet/vmlet/contract"
)

// TestInInstanceWords: what a node says names no field of the specification, and keeps what
// only looks like one.
func TestInInstanceWords(t *testing.T) {
	s := withDevices(t)
	secret := func(name string) *corev1.LocalObjectReference { return &corev1.LocalObjectReference{Name: name} }
	s.Volumes = append(s.Volumes, kubevirtv1.Volume{Name: "ci", CloudInitConfigDrive: &kubevirtv1.CloudInitSource{
		UserDataSecretRef: secret("user"), NetworkDataSecretRef: secret("net"),
	}})
	s.Volumes = append(s.Volumes, kubevirtv1.Volume{Name: "root", DataVolume: &kubevirtv1.DataVolumeSource{Name: "web-root"}},
		kubevirtv1.Volume{Name: "cd", ContainerDisk: &kubevirtv1.ContainerDiskSource{Image: "registry/cd:1"}})
	s.Networks = append(s.Networks, kubevirtv1.Network{Name: "vlan", Multus: &kubevirtv1.MultusNetwork{NetworkName: "default/vlan2013"}})
	made := multus.Interface(&s.Networks[1])
	for said, want := range map[string]string{
		"interface " + made + " of the pod: there is no interface " + made: "interface " + made +
			" of the pod: Multus has made none for spec.networks[1], default/vlan2013: see whether Multus runs on the node, and the pod's events",
		"boot.kernel.path: /var/run/vmlet/sockets/boot.kernel.sock: QEMU can't boot it": "spec.domain.firmware.kernelBoot.container.kernelPath: the image of kernelBoot: QEMU can't boot it",
		"the VMM ended: boot.kernel.initrd: does it fit? memory.size says how much":     "the VMM ended: spec.domain.firmware.kernelBoot.container.initrdPath: does it fit? spec.domain.memory.guest says how much",
		"disks[1].serial: no\nclock.timezone: /x: not found":                            "spec.domain.devices.disks[1].serial: no\nspec.domain.clock.timezone: /x: not found",
		"want a kernel (boot.kernel), or use vmm: qemu":                                 "want a kernel (spec.domain.firmware.kernelBoot), or set the annotation vmlet.io/vmm: qemu",
		"memory: 1Gi is too much":                                                       "spec.domain.memory.guest: 1Gi is too much",
		"out of memory: the kernel killed cpu.max in system.slice at v1.2":              "out of memory: the kernel killed cpu.max in system.slice at v1.2",
		"error: disks.img, etc. are there":                                              "error: disks.img, etc. are there",
		"":                                                                              "",

		"DiskChanged: vm default/virt-launcher-web-0123abcd: disks[1].path: /var/run/vmlet/disks/root/disk.img has changed since the save (size); put it back (vmlet restore --allow-changed-disks goes on without)": "DiskChanged: spec.volumes[1]: claim web-root has changed since the save (size); put it back",
		"vm a/virt-launcher-web-0123abcd: machineType: microvm can't: use q35, or save the VM instead":                                                                                                               "spec.domain.machine.type: microvm can't: use q35, or set hibernateStrategy.mode: Save",
		"vm a/virt-launcher-web-0123abcd is running": "the VM is running",
		`disks[0].path: /a, disk "root" of vm a/virt-launcher-web-0123456789, is block device 253:3 with disk "data" of vm a/virt-launcher-other-db-abcdef0123, which runs`: `spec.volumes[2]: /a, disk "root" of the VM, is block device 253:3 with disk "data" of VM other-db, which runs`,
		"/dev/vmlet/root: another process has it open: end that first (fuser -v /dev/vmlet/root names it), saying: no":                                                      "claim web-root: another process has it open: end that first, saying: no",
		"block device 7:0 is in use: end that first (lsblk and fuser -v name it)":                                                                                           "block device 7:0 is in use: end that first",
		"volume root: it has no disk.img, and must have a raw image of that name: import one into it":                                                                       "volume root (claim web-root): it has no disk.img, and must have a raw image of that name: import one into it",
		"read /var/run/vmlet/disks/root/base.qcow2: I/O error":                                                                                                              "read base.qcow2 on claim web-root: I/O error",
		"/var/run/vmlet/sockets/cd.sock, /var/run/vmlet/made/cd.qcow2.":                                                                                                     "image registry/cd:1, image registry/cd:1.",
		"/var/run/vmlet/made/c.iso and /var/run/vmlet/disks/gone/x":                                                                                                         "volume c and volume gone",
		"/var/run/vmlet/hibernation/restore-web-20260102T030405Z/memory: not there; /var/run/vmlet/hibernation: no room":                                                    "memory image restore-web-20260102T030405Z: not there; the claim for the guest's memory: no room",
		"/var/run/vmlet/keys/ada/id.pub: too long; open /var/run/vmlet/vm.json: no":                                                                                         "Secret ada: too long; open a file of the VM's pod: no",
		"it must be raw (qemu-img convert -O raw)":                                                                                                                          "it must be raw (qemu-img convert -O raw)",
		"an image can't be mapped as huge pages: restore it eagerly (without --lazy)":                                                                                       "an image can't be mapped as huge pages: restore it eagerly",
		"volume ci: network data: the Secret in /var/run/vmlet/disks/ci/networkdata has no key networkdata":                                                                 "volume ci: network data: Secret net has no key networkdata",
		"volume ci: user data: the Secret in /var/run/vmlet/disks/ci/userdata has no key userdata":                                                                          "volume ci: user data: Secret user has no key userdata",
	} {
		if got := InInstanceWords(said, s); got != want {
			t.Errorf("%q:\n got %q\nwant %q", said, got, want)
		}
	}
}

// TestFaultsText: what a node says in parts names the instance's own fields and objects, and leaves out what is for the
// node's administrator.
func TestFaultsText(t *testing.T) {
	s := withDevices(t)
	for want, faults := range map[string][]contract.Fault{
		"": nil,
		"spec.domain.devices.disks[1].serial: no\nspec.domain.cpu.model: no avx512, or set the annotation vmlet.io/vmm: qemu": {
			{Field: "disks[1].serial", Text: "no"}, {Field: "cpu.model", Text: "no avx512", UseVMM: "qemu"},
		},
		"spec.domain.memory.hugepages.pageSize: restore it eagerly": {{Field: "memory.hugePages", Text: "restore it eagerly", Advice: "without --lazy"}},
		"volume d: another process has it open":                     {{Object: contract.DisksFolder + "/d", Text: "another process has it open", Advice: "fuser names it"}},
		"no KVM":                                                    {{Text: "no KVM"}},
	} {
		if got := FaultsText(faults, s); got != want {
			t.Errorf("%+v:\n got %q\nwant %q", faults, got, want)
		}
	}
}
