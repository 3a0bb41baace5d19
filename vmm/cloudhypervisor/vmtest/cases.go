// Package vmtest has VMs that cloud-hypervisor's planner, prober and monitor are tested
// with.
package vmtest

import (
	"cmp"
	"testing"

	"github.com/vmlet/vmlet/hypervisor/standard"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
)

// ID is that of every VM here.
const ID = "5d2f0c2e-8f6b-4f0e-9d3a-6a4b7f1c0e11"

// Case is a VM that a plan is made for.
type Case struct {
	Name       string
	Arch       string // "" is amd64
	Hypervisor string // "" is kvm
	YAML       string // after "name: web-1\n"
	Change     func(r *vmm.PlanRequest)
}

// KernelBoot has a VM boot a kernel.
const KernelBoot = `
boot: {kernel: {path: /boot/vmlinuz, initrd: /boot/initrd.img, cmdline: "console=ttyS0 root=/dev/vda \"quoted\" <&>"}}
`

// Small has none of the devices that have a default.
const Small = KernelBoot + `
devices: {console: false, balloon: false}
`

// NUMA has all memory in one node.
const NUMA = `
cpu: {cores: 4}
memory: {size: 256Mi}
numa:
  nodes:
  - {cpus: "0,2", memory: 256Mi, hostNodes: "0", policy: interleave, distances: [{node: 1, value: 21}]}
  - {cpus: "1", memory: 0, distances: [{node: 2, value: 25}]}
  - {cpus: "3", memory: "0"}
`

// Cases are all.
func Cases() []Case {
	return append(machineCases(), deviceCases()...)
}

func machineCases() []Case {
	return []Case{
		{Name: "default", YAML: KernelBoot},
		{Name: "minimal", YAML: "vmm: cloud-hypervisor\nboot: {kernel: {path: /boot/vmlinuz}}\n"},
		{Name: "small", YAML: Small},
		{Name: "everything", YAML: `
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
`, Change: func(r *vmm.PlanRequest) {
			r.Taps = []int{1, 0}
			r.HotplugFolders = []string{"/images", "/images"}
		}},
		{Name: "system", YAML: Small + "system: {uuid: 5d307ca9-b3ef-428c-8861-06e72d69f223, serial: S1}\n"},
		{Name: "mshv", Hypervisor: "mshv", YAML: Small},
		{Name: "arm64", Arch: spec.ArchARM64, YAML: "cpu: {threads: 4}\ndisks: [{path: /images/root.img}]\n"},
		{Name: "max-vcpus", YAML: Small + "cpu: {sockets: 1, cores: 2, threads: 2, maxVcpus: 12}\n"},
		{Name: "numa", YAML: Small + NUMA},
		{Name: "mshv-everything", Hypervisor: "mshv", YAML: `
cpu: {cores: 2, maxVcpus: 6, features: [{name: nested, policy: disable}]}
memory: {size: 1Gi}
numa: {nodes: [{cpus: 0-2, memory: 1Gi}, {cpus: 3-5, memory: 0, distances: [{node: 0, value: 30}]}]}
boot: {kernel: {path: /boot/vmlinuz, initrd: /boot/initrd.img, cmdline: console=ttyS0}}
disks: [{path: /images/root.img}]
networks: [{tap: {bridge: br0}}]
hostDevices: [{pciAddress: "0000:01:00.0"}]
devices: {vsock: {cid: 42}, watchdog: {}, tpm: {socket: /run/tpm}}
`, Change: Taps(0)},
		{Name: "huge-pages", YAML: Small + "memory: {size: 1Gi, hugePages: {pageSize: 2Mi}}\n"},
		{Name: "no-landlock", YAML: Small, Change: func(r *vmm.PlanRequest) {
			r.Info.Details.(*cloudhypervisor.Details).Landlock = false
			r.HotplugFolders = []string{"/images"}
		}},
		{Name: "paused-own-user", YAML: Small, Change: func(r *vmm.PlanRequest) { r.Paused, r.User = true, nil }},
		{Name: "restore", YAML: KernelBoot + "disks: [{path: /images/a.img}, {path: /images/b.img, readOnly: true}]\nnetworks: [{tap: {bridge: br0}}]\n",
			Change: func(r *vmm.PlanRequest) { r.Image, r.Taps = Image(false), []int{0} }},
		{Name: "restore-changed-disks", YAML: KernelBoot + "disks: [{path: /images/a.img}]\n",
			Change: func(r *vmm.PlanRequest) { r.Image = Image(false); r.Image.AllowChangedDisks = true }},
		{Name: "restore-lazy", YAML: KernelBoot + "disks: [{path: /images/a.img}]\n", Change: func(r *vmm.PlanRequest) { r.Image = Image(true) }},
	}
}

func deviceCases() []Case {
	return []Case{
		{Name: "host-devices", YAML: Small + `
memory: {size: 1Gi}
hostDevices: [{pciAddress: "0000:01:00.0"}, {mdev: 0b2a1c1e-5f0d-4c33-9a35-1f3f8f9d7f10}, {pciAddress: "10000:02:00.0"},
  {pciAddress: "0000:03:00.0"}, {pciAddress: "0000:03:00.1"}, {pciAddress: "0000:03:00.2"}, {pciAddress: "0000:03:00.3"}, {pciAddress: "0000:04:00.0"}]
`},
		{Name: "tpm", YAML: KernelBoot + "devices: {tpm: {socket: /run/tpm}}\n"},
		{Name: "firmware", YAML: "disks: [{path: /images/root.img}, {path: /dev/vg/data, cache: writeback}]\ncloudInit: {userData: \"#cloud-config\"}\n"},
		{Name: "boot-order", YAML: "disks: [{path: /images/a.img, bootOrder: 2}, {path: /images/b.img, bootOrder: 5}, {path: /images/c.img}]\n"},
		{Name: "backing-chain", YAML: Small + `
disks:
- path: /images/top.qcow2
  format: qcow2
  backingFiles: [{path: /images/middle.qcow2, format: qcow2}, {path: /images/base.img}]
- {path: /images/alone.qcow2, format: qcow2}
- {path: /images/other.qcow2, format: qcow2, backingFiles: [{path: /images/base.img}]}
`},
		{Name: "many-disks", YAML: Small + "disks:" + ManyDisks(34)},
		{Name: "taps", YAML: Small + "networks: [{tap: {device: tap7}}, {tap: {bridge: br0}}, {tap: {bridge: br1}}]\n",
			Change: func(r *vmm.PlanRequest) { r.Taps = []int{3, 0, 1} }},
		{Name: "pod-network", YAML: Small + "networks: [{pod: {}, mac: \"52:54:00:aa:bb:cc\"}, {pod: {binding: bridge, interface: net1}}]\n",
			Change: func(r *vmm.PlanRequest) { r.Taps = []int{0, 1} }},
		{Name: "pod-network-queues", YAML: Small + "cpu: {sockets: 4}\nnetworks: [{pod: {queues: 4}}, {pod: {binding: bridge, interface: net1}}]\n",
			Change: func(r *vmm.PlanRequest) { r.Taps = []int{0, 7} }},
	}
}

// ManyDisks is a list of that many.
func ManyDisks(n int) string {
	out := ""
	for i := range n {
		out += "\n- {path: /images/" + string(rune('a'+i/26)) + string(rune('a'+i%26)) + ".img}"
	}
	return out + "\n"
}

// Image is one that a VM is restored from.
func Image(lazy bool) *vmm.Image {
	return &vmm.Image{
		Directory: "/images/saved",
		Lazy:      lazy,
		Manifest: &memory.Manifest{
			ID: "image-id", Accelerator: "kvm",
			VMM: memory.VMM{Name: wire.Name, Version: "53.0.0"},
			Disks: []memory.DiskIdentity{{
				Name: "disk0", Path: "/images/a.img", Format: "raw", Device: 2049, Inode: 12, Size: 1 << 20, ModTime: 1700000000000000000,
			}},
		},
	}
}

// Complete fills in the defaults as this VMM wants them.
func Complete(t testing.TB, yaml, arch, hypervisor string) *specv1.VirtualMachineSpec {
	t.Helper()
	s, err := spec.Parse([]byte("name: web-1\n"+yaml), "test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return WithDefaults(s, arch, hypervisor)
}

// WithDefaults fills in the defaults as this VMM wants them.
func WithDefaults(s *specv1.VirtualMachineSpec, arch, hypervisor string) *specv1.VirtualMachineSpec {
	return spec.Default(s, spec.Target{
		ID: ID, Hypervisor: hypervisor, VMM: spec.VMMCloudHypervisor, Arch: arch, Defaults: new(cloudhypervisor.CloudHypervisor).Defaults(arch),
	}, standard.Registry().Layers())
}

// Request makes the case's.
func (c Case) Request(t testing.TB) vmm.PlanRequest {
	arch, hypervisor := cmp.Or(c.Arch, spec.ArchAMD64), cmp.Or(c.Hypervisor, spec.HypervisorKVM)
	r := vmm.PlanRequest{
		ID: ID, Hypervisor: hypervisor, Accelerator: hypervisor, Info: Info(arch),
		Spec:       Complete(t, c.YAML, arch, hypervisor),
		User:       &plan.User{UID: 70001, GID: 70001},
		MemoryPath: "/run/vmlet/memory/web-1",
		StateDir:   "/var/lib/vmlet/vms/web-1",
		Seed:       2,
	}
	if c.Change != nil {
		c.Change(&r)
	}
	return r
}

// Info is of a program that has everything.
func Info(arch string) vmm.Info {
	return vmm.Info{Name: wire.Name, Version: "53.0.0", Binary: "/usr/bin/cloud-hypervisor", Details: &cloudhypervisor.Details{
		Arch: arch, Features: []string{cloudhypervisor.FeatureSocket, cloudhypervisor.FeatureEvents, cloudhypervisor.FeatureLandlock, cloudhypervisor.FeatureRestoreMode, cloudhypervisor.FeatureSeccomp}, Landlock: true,
		Accelerators: map[string]string{"kvm": "", "mshv": ""},
		Firmware:     "/usr/share/cloud-hypervisor/CLOUDHV.fd", FirmwareFiles: []string{"/usr/share/cloud-hypervisor/CLOUDHV.fd"},
	}}
}

// Taps numbers those of a request.
func Taps(numbers ...int) func(*vmm.PlanRequest) {
	return func(r *vmm.PlanRequest) { r.Taps = numbers }
}
