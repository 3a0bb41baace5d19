package cloudhypervisor

import (
	"testing"

	"github.com/vmlet/vmlet/hypervisor/standard"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chvm"
)

const testID = "5d2f0c2e-8f6b-4f0e-9d3a-6a4b7f1c0e11"

// planCase is a VM that a plan is made for.
type planCase struct {
	name       string
	arch       string // "" is amd64
	hypervisor string // "" is kvm
	yaml       string // after "name: web-1\n"
	change     func(r *vmm.PlanRequest)
}

const kernelBoot = `
boot: {kernel: {path: /boot/vmlinuz, initrd: /boot/initrd.img, cmdline: "console=ttyS0 root=/dev/vda \"quoted\" <&>"}}
`

// small has none of the devices that have a default.
const small = kernelBoot + `
devices: {console: false, balloon: false}
`

// numa has all memory in one node.
const numa = `
cpu: {cores: 4}
memory: {size: 256Mi}
numa:
  nodes:
  - {cpus: "0,2", memory: 256Mi, hostNodes: "0", policy: interleave, distances: [{node: 1, value: 21}]}
  - {cpus: "1", memory: 0, distances: [{node: 2, value: 25}]}
  - {cpus: "3", memory: "0"}
`

func planCases() []planCase {
	return append(machineCases(), deviceCases()...)
}

func machineCases() []planCase {
	return []planCase{
		{name: "default", yaml: kernelBoot},
		{name: "minimal", yaml: "vmm: cloud-hypervisor\nboot: {kernel: {path: /boot/vmlinuz}}\n"},
		{name: "small", yaml: small},
		{name: "everything", yaml: `
labels: {app: web}
cpu: {sockets: 2, cores: 2, threads: 2, features: [{name: amx}, {name: nested, policy: disable}, {name: kvm_hyperv}]}
memory: {size: 1Gi}
boot: {kernel: {path: /boot/vmlinuz, cmdline: console=ttyS0}}
disks:
- {path: /images/root.img, serial: "S 1"}
- {path: /images/data.qcow2, format: qcow2, cache: writeback}
- {path: /images/tools.img, readOnly: true}
cloudInit: {userData: "#cloud-config"}
networks: [{tap: {bridge: br0}}, {mac: "52:54:00:aa:bb:cc", tap: {device: tap7}}]
devices: {vsock: {cid: 42}, watchdog: {action: reset}}
`, change: func(r *vmm.PlanRequest) {
			r.Taps = []int{1, 0}
			r.HotplugFolders = []string{"/images", "/images"}
		}},
		{name: "mshv", hypervisor: "mshv", yaml: small},
		{name: "arm64", arch: spec.ArchARM64, yaml: "cpu: {threads: 4}\ndisks: [{path: /images/root.img}]\n"},
		{name: "max-vcpus", yaml: small + "cpu: {sockets: 1, cores: 2, threads: 2, maxVcpus: 12}\n"},
		{name: "numa", yaml: small + numa},
		{name: "mshv-everything", hypervisor: "mshv", yaml: `
cpu: {cores: 2, maxVcpus: 6, features: [{name: nested, policy: disable}]}
memory: {size: 1Gi}
numa: {nodes: [{cpus: 0-2, memory: 1Gi}, {cpus: 3-5, memory: 0, distances: [{node: 0, value: 30}]}]}
boot: {kernel: {path: /boot/vmlinuz, initrd: /boot/initrd.img, cmdline: console=ttyS0}}
disks: [{path: /images/root.img}]
networks: [{tap: {bridge: br0}}]
hostDevices: [{pciAddress: "0000:01:00.0"}]
devices: {vsock: {cid: 42}, watchdog: {}, tpm: {socket: /run/tpm}}
`, change: taps(0)},
		{name: "huge-pages", yaml: small + "memory: {size: 1Gi, hugePages: {pageSize: 2Mi}}\n"},
		{name: "no-landlock", yaml: small, change: func(r *vmm.PlanRequest) {
			r.Info.Details.(*Details).Landlock = false
			r.HotplugFolders = []string{"/images"}
		}},
		{name: "paused-own-user", yaml: small, change: func(r *vmm.PlanRequest) { r.Paused, r.User = true, nil }},
		{name: "restore", yaml: kernelBoot + "disks: [{path: /images/a.img}, {path: /images/b.img, readOnly: true}]\nnetworks: [{tap: {bridge: br0}}]\n",
			change: func(r *vmm.PlanRequest) { r.Image, r.Taps = testImage(false), []int{0} }},
		{name: "restore-changed-disks", yaml: kernelBoot + "disks: [{path: /images/a.img}]\n",
			change: func(r *vmm.PlanRequest) { r.Image = testImage(false); r.Image.AllowChangedDisks = true }},
		{name: "restore-lazy", yaml: kernelBoot + "disks: [{path: /images/a.img}]\n", change: func(r *vmm.PlanRequest) { r.Image = testImage(true) }},
	}
}

func deviceCases() []planCase {
	return []planCase{
		{name: "host-devices", yaml: small + `
memory: {size: 1Gi}
hostDevices: [{pciAddress: "0000:01:00.0"}, {mdev: 0b2a1c1e-5f0d-4c33-9a35-1f3f8f9d7f10}, {pciAddress: "10000:02:00.0"},
  {pciAddress: "0000:03:00.0"}, {pciAddress: "0000:03:00.1"}, {pciAddress: "0000:03:00.2"}, {pciAddress: "0000:03:00.3"}, {pciAddress: "0000:04:00.0"}]
`},
		{name: "tpm", yaml: kernelBoot + "devices: {tpm: {socket: /run/tpm}}\n"},
		{name: "firmware", yaml: "disks: [{path: /images/root.img}, {path: /dev/vg/data, cache: writeback}]\ncloudInit: {userData: \"#cloud-config\"}\n"},
		{name: "boot-order", yaml: "disks: [{path: /images/a.img, bootOrder: 2}, {path: /images/b.img, bootOrder: 5}, {path: /images/c.img}]\n"},
		{name: "backing-chain", yaml: small + `
disks:
- path: /images/top.qcow2
  format: qcow2
  backingFiles: [{path: /images/middle.qcow2, format: qcow2}, {path: /images/base.img}]
- {path: /images/alone.qcow2, format: qcow2}
- {path: /images/other.qcow2, format: qcow2, backingFiles: [{path: /images/base.img}]}
`},
		{name: "many-disks", yaml: small + "disks:" + manyDisks(34)},
		{name: "taps", yaml: small + "networks: [{tap: {device: tap7}}, {tap: {bridge: br0}}, {tap: {bridge: br1}}]\n",
			change: func(r *vmm.PlanRequest) { r.Taps = []int{3, 0, 1} }},
	}
}

func manyDisks(n int) string {
	out := ""
	for i := range n {
		out += "\n- {path: /images/" + string(rune('a'+i/26)) + string(rune('a'+i%26)) + ".img}"
	}
	return out + "\n"
}

func testImage(lazy bool) *vmm.Image {
	return &vmm.Image{
		Directory: "/images/saved",
		Lazy:      lazy,
		Manifest: &memory.Manifest{
			ID: "image-id", Accelerator: "kvm",
			VMM: memory.VMM{Name: chvm.Name, Version: "53.0.0"},
			Disks: []memory.DiskIdentity{{
				Name: "disk0", Path: "/images/a.img", Format: "raw", Device: 2049, Inode: 12, Size: 1 << 20, ModTime: 1700000000000000000,
			}},
		},
	}
}

// complete fills in the defaults as this VMM wants them.
func complete(t testing.TB, yaml, arch, hypervisor string) *specv1.VirtualMachineSpec {
	t.Helper()
	s, err := spec.Parse([]byte("name: web-1\n"+yaml), "test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return withDefaults(s, arch, hypervisor)
}

func withDefaults(s *specv1.VirtualMachineSpec, arch, hypervisor string) *specv1.VirtualMachineSpec {
	return spec.Default(s, spec.Target{
		ID: testID, Hypervisor: hypervisor, VMM: spec.VMMCloudHypervisor, Arch: arch, Defaults: new(Program).Defaults(arch),
	}, standard.Registry(sysfs.Roots{}).Layers())
}

// request makes the case's.
func (c planCase) request(t testing.TB) vmm.PlanRequest {
	arch, hypervisor := orElse(c.arch, spec.ArchAMD64), orElse(c.hypervisor, spec.HypervisorKVM)
	r := vmm.PlanRequest{
		ID: testID, Hypervisor: hypervisor, Accelerator: hypervisor, Info: testInfo(arch),
		Spec:       complete(t, c.yaml, arch, hypervisor),
		User:       &plan.User{UID: 70001, GID: 70001},
		MemoryPath: "/run/vmlet/memory/web-1",
		StateDir:   "/var/lib/vmlet/vms/web-1",
		Seed:       2,
	}
	if c.change != nil {
		c.change(&r)
	}
	return r
}

func orElse(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

// testInfo is of a program that has everything.
func testInfo(arch string) vmm.Info {
	return vmm.Info{Name: chvm.Name, Version: "53.0.0", Binary: "/usr/bin/cloud-hypervisor", Details: &Details{
		Arch: arch, Features: []string{FeatureSocket, FeatureEvents, FeatureLandlock, FeatureRestoreMode, FeatureSeccomp}, Landlock: true,
		Accelerators: map[string]string{"kvm": "", "mshv": ""},
		Firmware:     "/usr/share/cloud-hypervisor/CLOUDHV.fd", FirmwareFiles: []string{"/usr/share/cloud-hypervisor/CLOUDHV.fd"},
	}}
}
