// Package qemutest has VMs that QEMU's planner and prober are tested with, and what
// QEMUs answered.
package qemutest

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/vmlet/vmlet/hypervisor"
	hypervisors "github.com/vmlet/vmlet/hypervisor/standard/probe"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu"
)

// ID is that of every VM here.
const ID = "5d2f0c2e-8f6b-4f0e-9d3a-6a4b7f1c0e11"

// Case is a VM that a command line is made for.
type Case struct {
	Name       string
	Info       string // a fixture; "" is both of amd64
	Arch       string // "" is amd64
	Hypervisor string // "" is emulation
	YAML       string // after "name: web-1\n"
	Change     func(r *vmm.PlanRequest)
	// Unreal cases need what a test machine doesn't have.
	Unreal bool
}

// KernelBoot has a VM boot a kernel.
const KernelBoot = `
boot: {kernel: {path: /boot/vmlinuz, initrd: /boot/initrd.img, cmdline: "console=ttyS0 root=/dev/vda,quiet"}}
`

// Small has none of the devices that have a default.
const Small = KernelBoot + `
devices: {console: false, guestAgent: false, entropy: false, balloon: false}
`

// ManySATA are more disks than two controllers have ports for.
const ManySATA = `
disks:
- {path: /images/0.img, bus: sata}
- {path: /images/1.iso, type: cdrom, bus: sata}
- {path: /images/2.img, bus: sata}
- {path: /images/3.img, bus: sata}
- {path: /images/4.img, bus: sata}
- {path: /images/v.img, bus: virtio}
- {path: /images/5.img, bus: sata}
- {path: /images/6.img, bus: sata}
- {path: /images/7.img, bus: sata}
- {path: /images/8.img, bus: sata}
- {path: /images/9.img, bus: sata}
- {path: /images/10.img, bus: sata}
- {path: /images/11.img, bus: sata}
- {path: /images/12.img, bus: sata}
`

// Cases are all.
func Cases() []Case {
	return []Case{
		{Name: "default", YAML: KernelBoot},
		{Name: "default-kvm", Hypervisor: "kvm", YAML: KernelBoot, Unreal: true, Change: func(r *vmm.PlanRequest) {
			r.HypervisorDevice = "/dev/kvm"
			r.CPUQuirks = []string{"-arch-capabilities"}
		}},
		{Name: "small-paused", YAML: Small, Change: func(r *vmm.PlanRequest) { r.Paused = true }},
		{Name: "pc", YAML: KernelBoot + "machineType: pc\ndisks: [{path: /images/a.iso, type: cdrom}, {path: /images/b.img, bus: sata}]\n"},
		{Name: "cpu", YAML: Small + `
cpu: {model: Nehalem, sockets: 2, cores: 2, threads: 2, features: [{name: avx2}, {name: sse4_2, policy: disable}]}
`},
		{Name: "max-vcpus", YAML: Small + "cpu: {model: Nehalem, sockets: 1, cores: 2, threads: 2, maxVcpus: 12}\n"},
		{Name: "numa-one-memory", YAML: Small + `
cpu: {cores: 2, maxVcpus: 6}
memory: {size: 64Mi}
numa:
  nodes:
  - {cpus: "0,2,4-5", memory: 64Mi, hostNodes: "0"}
  - {cpus: "1,3", memory: 0, distances: [{node: 0, value: 30}]}
`},
		{Name: "numa", Info: "10.0", YAML: Small + NUMA},
		{Name: "numa-restore-lazy", Info: "10.0", YAML: Small + NUMA, Change: func(r *vmm.PlanRequest) { r.Image = Image(true) }},
		{Name: "numa-huge-pages", Info: "10.0", Unreal: true, YAML: Small + `
memory: {size: 4Gi, hugePages: {pageSize: 1Gi}}
numa: {nodes: [{cpus: "0", memory: 1Gi, hostNodes: 1-2, policy: interleave}, {memory: 3Gi, hostNodes: "1", policy: preferred}]}
`},
		{Name: "numa-passthrough", Info: "10.0", Unreal: true, YAML: Small + `
cpu: {cores: 4, dedicated: {isolateEmulatorThread: true}}
memory: {size: 6Mi, hugePages: {pageSize: 2Mi}}
numa: {guestMappingPassthrough: true, nodes: [{cpus: 0-2, memory: 4Mi, distances: [{node: 1, value: 21}]}, {cpus: "3", memory: 2Mi}]}
`},
		{Name: "host-devices", Unreal: true, YAML: Small + `
memory: {size: 1Gi}
hostDevices: [{pciAddress: "0000:01:00.0"}, {mdev: 0b2a1c1e-5f0d-4c33-9a35-1f3f8f9d7f10}, {pciAddress: "0000:01:00.1"}, {pciAddress: "10000:02:00.0"}, {pciAddress: "0000:03:00.0"}]
`},
		{Name: "tpm", YAML: KernelBoot + "devices: {tpm: {socket: /run/swtpm/web-1.sock}}\n"},
		{Name: "tpm-tis", YAML: KernelBoot + "machineType: pc\ndevices: {tpm: {socket: /run/swtpm/web-1.sock, model: tpm-tis}}\n"},
		{Name: "arm64-tpm", Info: "arm64", Arch: spec.ArchARM64, Unreal: true, YAML: "disks: [{path: /images/root.img}]\ndevices: {tpm: {socket: /run/swtpm/web-1.sock}}\n"},
		{Name: "huge-pages", YAML: Small + "memory: {size: 1Gi, hugePages: {pageSize: 2Mi}}\n", Unreal: true},
		{Name: "microvm", YAML: KernelBoot + `
machineType: microvm
disks: [{path: /images/a.img}, {path: /images/b.img, bus: scsi}]
networks: [{user: {}}]
cloudInit: {userData: "#cloud-config"}
`},
		{Name: "uefi", YAML: `
boot: {firmware: uefi}
disks: [{path: /images/root.img}]
`},
		{Name: "buses", YAML: `
disks:
- {path: /images/a.img, serial: "A 1", bootOrder: 2}
- {path: /images/b.img, bus: scsi, cache: writeback, bootOrder: 1}
- {path: /images/c.img, bus: sata, cache: writethrough}
- {path: /images/d.img, bus: usb, cache: unsafe, readOnly: true}
- {path: /images/e.iso, type: cdrom}
- {path: /images/f.iso, type: cdrom, bus: scsi}
- {path: /images/g.iso, type: cdrom, bus: usb}
cloudInit: {userData: "#cloud-config"}
`},
		{Name: "many-disks", YAML: `
disks:
- {path: /images/0.img}
- {path: /images/1.img}
- {path: /images/2.img}
- {path: /images/3.img}
- {path: /images/4.img}
- {path: /images/5.img}
- {path: /images/6.img}
- {path: /images/7.img}
- {path: /images/8.img}
`},
		{Name: "many-disks-and-cdrom", YAML: `
disks:
- {path: /images/cd.iso, type: cdrom}
- {path: /images/0.img}
- {path: /images/1.img}
- {path: /images/2.img}
- {path: /images/3.img}
- {path: /images/4.img}
- {path: /images/5.img}
- {path: /images/6.img}
- {path: /images/7.img}
- {path: /images/8.img}
`},
		{Name: "many-sata", YAML: Small + ManySATA},
		{Name: "many-sata-pc", YAML: Small + "machineType: pc\n" + ManySATA},
		{Name: "block-device", YAML: "disks: [{path: /dev/vg/root}]\n", Unreal: true,
			Change: func(r *vmm.PlanRequest) { r.BlockDevices = []string{"/dev/vg/root"} }},
		{Name: "backing-chain", YAML: `
disks:
- path: /images/top.qcow2
  format: qcow2
  backingFiles: [{path: /images/middle.qcow2, format: qcow2}, {path: /images/base.img, format: raw}]
- {path: /images/alone.qcow2, format: qcow2}
`},
		{Name: "network", YAML: Small + `
networks:
- user: {ports: [{hostPort: 18022, guestPort: 22}, {protocol: udp, hostAddress: 127.0.0.2, hostPort: 15353, guestPort: 53}]}
- {model: e1000e, mac: "52:54:00:aa:bb:cc"}
`},
		{Name: "tap", YAML: Small + "networks: [{tap: {device: tap7}}, {user: {}}, {tap: {bridge: br0}}]\n", Unreal: true,
			Change: func(r *vmm.PlanRequest) { r.Taps = []int{0, -1, 1} }},
		{Name: "pod-network", YAML: Small + "networks: [{pod: {}, mac: \"52:54:00:aa:bb:cc\"}, {pod: {binding: bridge, interface: net1}, model: e1000}]\n", Unreal: true,
			Change: func(r *vmm.PlanRequest) { r.Taps = []int{0, 1} }},
		{Name: "pod-network-queues", YAML: Small + "cpu: {sockets: 4}\nnetworks: [{pod: {queues: 4}}, {pod: {binding: bridge, interface: net1, linkDown: true}}, {pod: {binding: bridge, interface: net2}, model: e1000}]\n", Unreal: true,
			Change: func(r *vmm.PlanRequest) { r.Taps, r.VhostNet = []int{0, 5, 7}, []int{8, 12, 13} }},
		{Name: "pod-network-microvm", YAML: Small + "machineType: microvm\nnetworks: [{pod: {queues: 2}}]\n", Unreal: true,
			Change: func(r *vmm.PlanRequest) { r.Taps = []int{0} }},
		{Name: "vsock", YAML: Small + "", Unreal: true, Change: func(r *vmm.PlanRequest) {
			r.Spec = Complete(Small2("vsock: {cid: 42}"), spec.ArchAMD64, "emulation")
		}},
		{Name: "watchdog", Change: func(r *vmm.PlanRequest) {
			r.Spec = Complete(Small2("watchdog: {action: inject-nmi}"), spec.ArchAMD64, "emulation")
		}},
		{Name: "watchdog-itco", Change: func(r *vmm.PlanRequest) {
			r.Spec = Complete(Small2("watchdog: {model: itco}"), spec.ArchAMD64, "emulation")
		}},
		{Name: "system", YAML: Small + `
system:
  uuid: 5d307ca9-b3ef-428c-8861-06e72d69f223
  manufacturer: "Kube,Virt=x"
  product: None
  version: "1.2"
  serial: "e4686d2c-6e8d"
  sku: "1.2"
  family: Red, green
  assetTag: "rack,4"
onReboot: end
`},
		{Name: "features", YAML: Small + `
features: {acpi: false, apic: true, smm: false}
clock: {pit: {present: false}, hpet: {present: true, tickPolicy: delay}}
`},
		{Name: "enlightenments", YAML: Small + Enlightenments},
		{Name: "enlightenments-kvm", Hypervisor: "kvm", Unreal: true, YAML: Small + Enlightenments + "cpu: {model: Nehalem}\n"},
		{Name: "clock-zone", YAML: Small + "clock: {timezone: Europe/Berlin, rtc: {tickPolicy: catchup, track: guest}}\n"},
		{Name: "clock-offset", YAML: Small + "clock: {offsetSeconds: -5445, rtc: {present: true, tickPolicy: delay, track: wall}, hpet: {present: false}}\n"},
		{Name: "cpu-policies", YAML: Small + `
cpu: {model: Nehalem, features: [{name: aes, policy: optional}, {name: invtsc, policy: optional}, {name: rdrand, policy: force}, {name: arch-capabilities, policy: forbid}, {name: avx, policy: require}]}
`},
		// QEMU warns of what it then leaves out.
		{Name: "cpu-force", Info: "7.2", Unreal: true, YAML: Small + "cpu: {features: [{name: sha_ni, policy: force}]}\n"},
		{Name: "graphics", YAML: Small2("inputs: [{}, {type: keyboard}, {bus: virtio}, {type: keyboard, bus: virtio}], video: {}")},
		{Name: "graphics-pc", YAML: "machineType: pc\n" + Small2("inputs: [{}, {bus: virtio}], video: {type: cirrus}")},
		{Name: "graphics-uefi", YAML: "boot: {firmware: uefi}\ndisks: [{path: /images/root.img, bus: usb}]\ndevices: {inputs: [{}], video: {}}\n"},
		{Name: "graphics-virtio", YAML: Small2("video: {type: virtio}")},
		{Name: "graphics-ramfb", YAML: Small2("video: {type: ramfb}")},
		{Name: "arm64-graphics", Info: "arm64", Arch: spec.ArchARM64, Unreal: true, YAML: "disks: [{path: /images/root.img}]\ndevices: {inputs: [{}, {bus: virtio}], video: {}}\n"},
		{Name: "graphics-microvm", YAML: "machineType: microvm\n" + Small2("inputs: [{bus: virtio}]")},
		{Name: "disk-io", YAML: `
disks:
- {path: /images/a.qcow2, format: qcow2, io: native, errorPolicy: enospace, backingFiles: [{path: /images/base.img}]}
- {path: /images/b.img, bus: sata, io: threads, errorPolicy: report}
- {path: /images/c.img, bus: scsi, errorPolicy: ignore}
- {path: /images/d.img, bus: usb}
`},
		{Name: "disk-shareable", YAML: `
disks:
- {path: /images/a.img}
- {path: /images/b.img, shareable: true}
- {path: /images/c.img, bus: sata, shareable: true}
- {path: /images/d.img, bus: scsi, shareable: true, readOnly: true}
- {path: /images/e.img, bus: usb, shareable: true}
`},
		{Name: "network-models", YAML: `
disks: [{path: /images/a.img, bootOrder: 2}]
networks:
- {model: virtio, bootOrder: 1}
- {model: e1000}
- {model: ne2k_pci}
- {model: pcnet}
- {model: rtl8139, bootOrder: 3}
`},
		{Name: "network-igb", Info: "10.0", YAML: Small + "networks: [{model: igb}]\n"},
		{Name: "network-user", YAML: Small + `
networks:
- user:
    cidr: 10.0.2.0/24
    hostname: web-1
    searchDomains: [default.svc.cluster.local, svc.cluster.local]
    bootFile: pxelinux.0
    tftpServer: tftp.example.com
    ports: [{hostAddress: 0.0.0.0, hostPort: 18080, guestPort: 80}]
- user: {cidr: 192.168.7.8/29, hostname: a-name-of-more-than-thirty-two-characters}
`},
		// Its specification is from before disks had a policy for errors.
		{Name: "restore", YAML: KernelBoot + "disks: [{path: /images/a.img}]\n", Change: func(r *vmm.PlanRequest) {
			r.Image = Image(false)
			r.Spec.Disks[0].ErrorPolicy = ""
		}},
		// Disk 1 has gone, another has come while it ran, and so has an interface.
		{Name: "restore-plugged", YAML: KernelBoot + `
disks: [{path: /images/a.img, slot: 0}, {path: /images/c.img, slot: 2}, {path: /images/d.img, slot: 65}, {path: /images/e.img, bus: scsi, slot: 1}]
networks: [{user: {}, slot: 64}]
`, Change: func(r *vmm.PlanRequest) {
			r.Image = Image(false)
			r.Image.Manifest.VMM.Extra = map[string]string{"hotplug-ports": "true", "scsi-controller": "true", "disk-queues": "2"}
			// Without it there are no message-signalled interrupts, which ports need.
			r.Image.Manifest.CPU.Features = []string{"apic", "avx", "hypervisor", "lm", "nx", "sse2"}
		}},
		// Its last SCSI disk has gone: the controller is a part of the state.
		{Name: "restore-scsi-gone", Info: "7.2", YAML: Small, Change: func(r *vmm.PlanRequest) {
			r.Image = Image(false)
			r.Image.Manifest.VMM.Extra = map[string]string{"scsi-controller": "true"}
		}},
		// Made without the chipset's SATA controller, as none of the restores above is.
		{Name: "restore-no-sata", Info: "7.2", YAML: Small, Change: func(r *vmm.PlanRequest) {
			r.Image = Image(false)
			r.Image.Manifest.VMM.Extra = map[string]string{"no-sata": "true"}
		}},
		{Name: "restore-lazy", Info: "10.0", YAML: KernelBoot + "disks: [{path: /images/a.img, readOnly: true}]\n",
			Change: func(r *vmm.PlanRequest) { r.Image = Image(true) }},
		{Name: "restore-named-cpu", Info: "10.0", YAML: Small + "cpu: {model: Skylake-Server-v4, features: [{name: avx2}]}\n",
			Change: func(r *vmm.PlanRequest) {
				r.Image = Image(false)
				// What this QEMU could give it now; what it was given by name; and
				// what nobody knows.
				r.Image.Manifest.VMM.Extra = map[string]string{"cpu-unavailable-features": "x2apic,avx2,rdseed,frob,model-id=x"}
			}},
		{Name: "arm64", Info: "arm64", Arch: spec.ArchARM64, Unreal: true, YAML: `
disks: [{path: /images/root.img}, {path: /images/a.iso, type: cdrom}]
networks: [{user: {}}]
cloudInit: {userData: "#cloud-config"}
`},
		{Name: "arm64-kernel", Info: "arm64", Arch: spec.ArchARM64, Hypervisor: "kvm", YAML: KernelBoot, Unreal: true,
			Change: func(r *vmm.PlanRequest) { r.HypervisorDevice = "/dev/kvm" }},
	}
}

// Enlightenments are all that KVM shows a guest of itself.
const Enlightenments = `
features:
  kvmHidden: true
  pvSpinlock: true
  hyperv:
    passthrough: true
    relaxed: true
    vapic: true
    spinlocks: 8191
    vpindex: true
    runtime: true
    synic: true
    synicTimer: true
    synicTimerDirect: true
    reset: true
    vendorId: Some Body
    frequencies: true
    reenlightenment: true
    tlbflush: true
    tlbflushDirect: true
    tlbflushExtended: true
    ipi: true
    evmcs: true
clock: {kvm: {present: false}, pit: {tickPolicy: discard}}
`

// NUMA has two nodes with memory.
const NUMA = `
cpu: {cores: 4}
memory: {size: 96Mi}
numa:
  nodes:
  - {cpus: 0-1, memory: 32Mi, hostNodes: "0", distances: [{node: 1, value: 21}]}
  - {cpus: "2", memory: 64Mi, hostNodes: "0", policy: interleave, distances: [{node: 2, value: 25}]}
  - {cpus: "3", memory: "0"}
`

// Small2 is Small with another device.
func Small2(device string) string {
	return KernelBoot + "devices: {console: false, guestAgent: false, entropy: false, balloon: false, " + device + "}\n"
}

// Image was saved on pc-q35-6.2 with a max CPU that had fewer features.
func Image(lazy bool) *vmm.Image {
	return &vmm.Image{
		Directory: "/images/saved",
		Lazy:      lazy,
		Manifest: &memory.Manifest{
			ID: "image-id", MachineType: "pc-q35-6.2", Accelerator: "emulation",
			VMM: memory.VMM{Name: "qemu", Version: "7.2.22"},
			CPU: memory.CPU{Model: "max", Features: []string{"avx", "hypervisor", "lm", "nx", "sse2"}},
			Disks: []memory.DiskIdentity{{
				Name: "disk0", Path: "/images/a.img", Format: "raw", Device: 2049, Inode: 12, Size: 1 << 20, ModTime: 1700000000000000000,
			}},
		},
	}
}

// Complete fills in the defaults as this VMM wants them.
func Complete(yaml, arch, hypervisor string) *specv1.VirtualMachineSpec {
	s, err := spec.Parse([]byte("name: web-1\n"+yaml), "test.yaml")
	if err != nil {
		panic(err) // a fault of the test's own
	}
	target := spec.Target{ID: ID, Hypervisor: hypervisor, VMM: spec.VMMQEMU, Arch: arch, Defaults: new(qemu.QEMU).Defaults(arch)}
	return spec.Default(s, target, hypervisors.Hypervisors(sysfs.Roots{}).Layers())
}

// Request makes the case's for a QEMU.
func (c Case) Request(info vmm.Info) vmm.PlanRequest {
	hypervisor := cmp.Or(c.Hypervisor, "emulation")
	r := vmm.PlanRequest{
		ID: ID, Hypervisor: hypervisor, Info: info,
		Spec:       Complete(c.YAML, cmp.Or(c.Arch, spec.ArchAMD64), hypervisor),
		User:       &plan.User{UID: 70001, GID: 70001},
		MemoryPath: "/run/vmlet/memory/web-1",
		StateDir:   "/var/lib/vmlet/vms/web-1",
		Seed:       2,
	}
	for _, h := range Hypervisors("") {
		if h.Name() == hypervisor {
			r.Accelerator = h.Accelerator()
		}
	}
	if c.Change != nil {
		c.Change(&r)
	}
	return r
}

// Fixture is what a QEMU said once, cut down. folder has the files of vmm/qemu/testdata.
func Fixture(t testing.TB, folder, name string) vmm.Info {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "info-"+name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var said struct {
		Version string       `json:"version"`
		Details qemu.Details `json:"details"`
	}
	if err := json.Unmarshal(text, &said); err != nil {
		t.Fatal(err)
	}
	return vmm.Info{
		Name: spec.VMMQEMU, Version: said.Version, Binary: "/usr/bin/qemu-system",
		LazyRestore: said.Details.ReadOnlyMemory, Details: &said.Details,
	}
}

// Hypervisors are those of a machine with this /dev.
func Hypervisors(dev string) []hypervisor.Hypervisor {
	return hypervisors.Hypervisors(sysfs.Roots{Dev: dev}).All()
}
