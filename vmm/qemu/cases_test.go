package qemu

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/vmlet/vmlet/hypervisor/standard"
	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/sysfs"
	"github.com/vmlet/vmlet/vmm"
)

const testID = "5d2f0c2e-8f6b-4f0e-9d3a-6a4b7f1c0e11"

// planCase is a VM that a command line is made for.
type planCase struct {
	name       string
	info       string // a fixture; "" is both of amd64
	arch       string // "" is amd64
	hypervisor string // "" is emulation
	yaml       string // after "name: web-1\n"
	change     func(r *vmm.PlanRequest)
	// unreal cases need what a test machine doesn't have.
	unreal bool
}

const kernelBoot = `
boot: {kernel: {path: /boot/vmlinuz, initrd: /boot/initrd.img, cmdline: "console=ttyS0 root=/dev/vda,quiet"}}
`

// small has none of the devices that have a default.
const small = kernelBoot + `
devices: {console: false, guestAgent: false, entropy: false, balloon: false}
`

func planCases() []planCase {
	return []planCase{
		{name: "default", yaml: kernelBoot},
		{name: "default-kvm", hypervisor: "kvm", yaml: kernelBoot, unreal: true, change: func(r *vmm.PlanRequest) {
			r.HypervisorDevice = "/dev/kvm"
			r.CPUQuirks = []string{"-arch-capabilities"}
		}},
		{name: "small-paused", yaml: small, change: func(r *vmm.PlanRequest) { r.Paused = true }},
		{name: "pc", yaml: kernelBoot + "machineType: pc\ndisks: [{path: /images/a.iso, type: cdrom}, {path: /images/b.img, bus: sata}]\n"},
		{name: "cpu", yaml: small + `
cpu: {model: Nehalem, sockets: 2, cores: 2, threads: 2, features: [{name: avx2}, {name: sse4_2, policy: disable}]}
`},
		{name: "max-vcpus", yaml: small + "cpu: {model: Nehalem, sockets: 1, cores: 2, threads: 2, maxVcpus: 12}\n"},
		{name: "numa-one-memory", yaml: small + `
cpu: {cores: 2, maxVcpus: 6}
memory: {size: 64Mi}
numa:
  nodes:
  - {cpus: "0,2,4-5", memory: 64Mi, hostNodes: "0"}
  - {cpus: "1,3", memory: 0, distances: [{node: 0, value: 30}]}
`},
		{name: "numa", info: "10.0", yaml: small + numa},
		{name: "numa-restore-lazy", info: "10.0", yaml: small + numa, change: func(r *vmm.PlanRequest) { r.Image = testImage(true) }},
		{name: "numa-huge-pages", info: "10.0", unreal: true, yaml: small + `
memory: {size: 4Gi, hugePages: {pageSize: 1Gi}}
numa: {nodes: [{cpus: "0", memory: 1Gi, hostNodes: 1-2, policy: interleave}, {memory: 3Gi, hostNodes: "1", policy: preferred}]}
`},
		{name: "host-devices", unreal: true, yaml: small + `
memory: {size: 1Gi}
hostDevices: [{pciAddress: "0000:01:00.0"}, {mdev: 0b2a1c1e-5f0d-4c33-9a35-1f3f8f9d7f10}, {pciAddress: "0000:01:00.1"}, {pciAddress: "10000:02:00.0"}, {pciAddress: "0000:03:00.0"}]
`},
		{name: "tpm", yaml: kernelBoot + "devices: {tpm: {socket: /run/swtpm/web-1.sock}}\n"},
		{name: "tpm-tis", yaml: kernelBoot + "machineType: pc\ndevices: {tpm: {socket: /run/swtpm/web-1.sock, model: tpm-tis}}\n"},
		{name: "arm64-tpm", info: "arm64", arch: spec.ArchARM64, unreal: true, yaml: "disks: [{path: /images/root.img}]\ndevices: {tpm: {socket: /run/swtpm/web-1.sock}}\n"},
		{name: "huge-pages", yaml: small + "memory: {size: 1Gi, hugePages: {pageSize: 2Mi}}\n", unreal: true},
		{name: "microvm", yaml: kernelBoot + `
machineType: microvm
disks: [{path: /images/a.img}, {path: /images/b.img, bus: scsi}]
networks: [{user: {}}]
cloudInit: {userData: "#cloud-config"}
`},
		{name: "uefi", yaml: `
boot: {firmware: uefi}
disks: [{path: /images/root.img}]
`},
		{name: "buses", yaml: `
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
		{name: "many-disks", yaml: `
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
		{name: "block-device", yaml: "disks: [{path: /dev/vg/root}]\n", unreal: true,
			change: func(r *vmm.PlanRequest) { r.BlockDevices = []string{"/dev/vg/root"} }},
		{name: "backing-chain", yaml: `
disks:
- path: /images/top.qcow2
  format: qcow2
  backingFiles: [{path: /images/middle.qcow2, format: qcow2}, {path: /images/base.img, format: raw}]
- {path: /images/alone.qcow2, format: qcow2}
`},
		{name: "network", yaml: small + `
networks:
- user: {ports: [{hostPort: 18022, guestPort: 22}, {protocol: udp, hostAddress: 127.0.0.2, hostPort: 15353, guestPort: 53}]}
- {model: e1000e, mac: "52:54:00:aa:bb:cc"}
`},
		{name: "tap", yaml: small + "networks: [{tap: {device: tap7}}, {user: {}}, {tap: {bridge: br0}}]\n", unreal: true,
			change: func(r *vmm.PlanRequest) { r.Taps = []int{0, -1, 1} }},
		{name: "vsock", yaml: small + "", unreal: true, change: func(r *vmm.PlanRequest) {
			r.Spec = complete(small2("vsock: {cid: 42}"), spec.ArchAMD64, "emulation")
		}},
		{name: "watchdog", change: func(r *vmm.PlanRequest) {
			r.Spec = complete(small2("watchdog: {action: inject-nmi}"), spec.ArchAMD64, "emulation")
		}},
		{name: "watchdog-itco", change: func(r *vmm.PlanRequest) {
			r.Spec = complete(small2("watchdog: {model: itco}"), spec.ArchAMD64, "emulation")
		}},
		{name: "restore", yaml: kernelBoot + "disks: [{path: /images/a.img}]\n", change: func(r *vmm.PlanRequest) { r.Image = testImage(false) }},
		// Disk 1 has gone, another has come while it ran, and so has an interface.
		{name: "restore-plugged", yaml: kernelBoot + `
disks: [{path: /images/a.img, slot: 0}, {path: /images/c.img, slot: 2}, {path: /images/d.img, slot: 65}, {path: /images/e.img, bus: scsi, slot: 1}]
networks: [{user: {}, slot: 64}]
`, change: func(r *vmm.PlanRequest) {
			r.Image = testImage(false)
			r.Image.Manifest.VMM.Extra = map[string]string{portsKey: present, scsiKey: present, queuesKey: "2"}
			// Without it there are no message-signalled interrupts, which ports need.
			r.Image.Manifest.CPU.Features = []string{"apic", "avx", "hypervisor", "lm", "nx", "sse2"}
		}},
		// Its last SCSI disk has gone: the controller is a part of the state.
		{name: "restore-scsi-gone", info: "7.2", yaml: small, change: func(r *vmm.PlanRequest) {
			r.Image = testImage(false)
			r.Image.Manifest.VMM.Extra = map[string]string{scsiKey: present}
		}},
		// Made without the chipset's SATA controller, as none of the restores above is.
		{name: "restore-no-sata", info: "7.2", yaml: small, change: func(r *vmm.PlanRequest) {
			r.Image = testImage(false)
			r.Image.Manifest.VMM.Extra = map[string]string{noSATAKey: present}
		}},
		{name: "restore-lazy", info: "10.0", yaml: kernelBoot + "disks: [{path: /images/a.img, readOnly: true}]\n",
			change: func(r *vmm.PlanRequest) { r.Image = testImage(true) }},
		{name: "restore-named-cpu", info: "10.0", yaml: small + "cpu: {model: Skylake-Server-v4, features: [{name: avx2}]}\n",
			change: func(r *vmm.PlanRequest) {
				r.Image = testImage(false)
				// What this QEMU could give it now; what it was given by name; and
				// what nobody knows.
				r.Image.Manifest.VMM.Extra = map[string]string{unavailableKey: "x2apic,avx2,rdseed,frob,model-id=x"}
			}},
		{name: "arm64", info: "arm64", arch: spec.ArchARM64, unreal: true, yaml: `
disks: [{path: /images/root.img}, {path: /images/a.iso, type: cdrom}]
networks: [{user: {}}]
cloudInit: {userData: "#cloud-config"}
`},
		{name: "arm64-kernel", info: "arm64", arch: spec.ArchARM64, hypervisor: "kvm", yaml: kernelBoot, unreal: true,
			change: func(r *vmm.PlanRequest) { r.HypervisorDevice = "/dev/kvm" }},
	}
}

// numa has two nodes with memory.
const numa = `
cpu: {cores: 4}
memory: {size: 96Mi}
numa:
  nodes:
  - {cpus: 0-1, memory: 32Mi, hostNodes: "0", distances: [{node: 1, value: 21}]}
  - {cpus: "2", memory: 64Mi, hostNodes: "0", policy: interleave, distances: [{node: 2, value: 25}]}
  - {cpus: "3", memory: "0"}
`

// small2 is small with another device.
func small2(device string) string {
	return kernelBoot + "devices: {console: false, guestAgent: false, entropy: false, balloon: false, " + device + "}\n"
}

// testImage was saved on pc-q35-6.2 with a max CPU that had fewer features.
func testImage(lazy bool) *vmm.Image {
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

func complete(yaml, arch, hypervisor string) *vmSpec {
	s, err := spec.Parse([]byte("name: web-1\n"+yaml), "test.yaml")
	if err != nil {
		panic(err) // a fault of the test's own
	}
	target := spec.Target{ID: testID, Hypervisor: hypervisor, VMM: spec.VMMQEMU, Arch: arch, Defaults: new(QEMU).Defaults(arch)}
	return spec.Default(s, target, standard.Registry(sysfs.Roots{}).Layers())
}

// request makes the case's for a QEMU.
func (c planCase) request(info vmm.Info) vmm.PlanRequest {
	hypervisor := orElse(c.hypervisor, "emulation")
	r := vmm.PlanRequest{
		ID: testID, Hypervisor: hypervisor, Info: info,
		Spec:       complete(c.yaml, orElse(c.arch, spec.ArchAMD64), hypervisor),
		User:       &plan.User{UID: 70001, GID: 70001},
		MemoryPath: "/run/vmlet/memory/web-1",
		StateDir:   "/var/lib/vmlet/vms/web-1",
		Seed:       2,
	}
	for _, h := range hypervisors("") {
		if h.Name() == hypervisor {
			r.Accelerator = h.Accelerator()
		}
	}
	if c.change != nil {
		c.change(&r)
	}
	return r
}

// fixture is what a QEMU said once, cut down.
func fixture(t testing.TB, name string) vmm.Info {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "info-"+name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var a answer
	if err := json.Unmarshal(text, &a); err != nil {
		t.Fatal(err)
	}
	return New(Config{Binary: "/usr/bin/qemu-system", Hypervisors: hypervisors("")}).info(&a)
}
