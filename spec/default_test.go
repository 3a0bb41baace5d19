package spec

import (
	"testing"

	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"google.golang.org/protobuf/proto"
)

const full = `
name: web-1
labels: {b: "2", a: "1", c: "3"}
cpu: {sockets: 2, maxVcpus: 4}
memory: {size: 512Mi}
numa: {nodes: [{cpus: "0,2-3", memory: 512Mi, hostNodes: "0"}, {cpus: "1", memory: 0, distances: [{node: 0, value: 21}]}]}
hostDevices: [{pciAddress: "0000:01:00.0"}, {name: host0, mdev: 0b2a1c1e-5f0d-4c33-9a35-1f3f8f9d7f10}]
boot: {kernel: {path: /k, initrd: /i, cmdline: "a=b, c"}}
disks: [{path: /a}, {path: /b.iso, type: cdrom}, {path: /c.qcow2, format: qcow2, backingFiles: [{path: /d}]}]
networks: [{}, {tap: {}}, {user: {ports: [{hostPort: 1, guestPort: 2}]}}]
cloudInit: {userData: "#cloud-config\n"}
devices: {watchdog: {}, vsock: {cid: 3}, tpm: {socket: /run/tpm.sock}}
`

func parse(t testing.TB, text string) *specv1.VirtualMachineSpec {
	t.Helper()
	s, err := Parse([]byte(text), "test")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func target() Target {
	return Target{ID: "5d2f0c2e-8f6b-4f0e-9d3a-6a4b7f1c0e11", Hypervisor: HypervisorKVM, VMM: VMMQEMU, Arch: ArchAMD64, Defaults: ownDefaults(ArchAMD64)}
}

// ownDefaults are those of a VMM that has a default for everything.
func ownDefaults(arch string) VMMDefaults {
	d := VMMDefaults{
		Layer: &specv1.VirtualMachineSpec{
			MachineType: "q35", Boot: &specv1.Boot{Firmware: FirmwareBIOS}, Devices: &specv1.Devices{GuestAgent: proto.Bool(true)},
		},
		Watchdog: WatchdogI6300ESB, TPM: TPMCRB, CDROMBus: BusSATA, UserNetwork: true, Disk: &specv1.Disk{ErrorPolicy: ErrorStop},
	}
	if arch == ArchARM64 {
		d.Layer.MachineType, d.Layer.Boot.Firmware, d.CDROMBus, d.TPM = "virt", FirmwareUEFI, BusSCSI, TPMTIS
	}
	return d
}

func complete(t testing.TB, text string) *specv1.VirtualMachineSpec {
	t.Helper()
	return Default(parse(t, text), target(), BaseLayers())
}

func TestDefault(t *testing.T) {
	original := parse(t, full)
	before := proto.Clone(original)
	s := Default(original, target(), BaseLayers())
	if !proto.Equal(original, before) {
		t.Fatal("Default changed what it was given")
	}
	if again := Default(s, target(), BaseLayers()); !proto.Equal(again, s) {
		t.Errorf("Default of its own result is\n%v\nwant\n%v", again, s)
	}
	if faults := Validate(s); faults != nil {
		t.Errorf("the completed specification has faults: %v", faults)
	}
	want := parse(t, `
name: web-1
labels: {b: "2", a: "1", c: "3"}
hypervisor: kvm
vmm: qemu
machineType: q35
cpu: {sockets: 2, cores: 1, threads: 1, maxVcpus: 4}
memory: {size: 512Mi}
numa:
  nodes:
  - {cpus: "0,2-3", memory: 512Mi, hostNodes: "0", policy: strict}
  - {cpus: "1", memory: "0", distances: [{node: 0, value: 21}]}
hostDevices:
- {name: host0-1, pciAddress: "0000:01:00.0"}
- {name: host0, mdev: 0b2a1c1e-5f0d-4c33-9a35-1f3f8f9d7f10}
boot: {firmware: bios, kernel: {path: /k, initrd: /i, cmdline: "a=b, c"}}
disks:
- {name: disk0, path: /a, format: raw, type: disk, bus: virtio, cache: none, errorPolicy: stop}
- {name: disk1, path: /b.iso, format: raw, type: cdrom, bus: sata, cache: none, readOnly: true, errorPolicy: stop}
- {name: disk2, path: /c.qcow2, format: qcow2, type: disk, bus: virtio, cache: none, errorPolicy: stop, backingFiles: [{path: /d, format: raw}]}
cloudInit: {userData: "#cloud-config\n"}
devices: {console: true, guestAgent: true, entropy: true, balloon: false, watchdog: {model: i6300esb, action: reset}, vsock: {cid: 3}, tpm: {socket: /run/tpm.sock, model: tpm-crb}}
stopGracePeriod: 30s
`)
	networks := s.Networks
	s.Networks = nil
	if !proto.Equal(s, want) {
		t.Errorf("completed:\n%v\nwant\n%v", s, want)
	}
	for i, n := range networks {
		if n.Mac != MAC(target().ID, i) || n.Model != NetVirtio || n.Backend == nil {
			t.Errorf("networks[%d] is %v", i, n)
		}
	}
	if p := networks[2].GetUser().GetPorts()[0]; p.Protocol != ProtocolTCP || p.HostAddress != "127.0.0.1" {
		t.Errorf("port %v", p)
	}
}

func TestDefaultsByTarget(t *testing.T) {
	for _, c := range []struct {
		hypervisor, arch, yaml string
		check                  func(s *specv1.VirtualMachineSpec) bool
	}{
		{"emulation", "amd64", "", func(s *specv1.VirtualMachineSpec) bool { return s.Cpu.Model == "" && s.MachineType == "q35" }},
		{"kvm", "arm64", "disks: [{path: /a, type: cdrom}]", func(s *specv1.VirtualMachineSpec) bool {
			return s.MachineType == "virt" && s.Boot.Firmware == FirmwareUEFI && s.Disks[0].Bus == BusSCSI
		}},
		{"kvm", "amd64", "hypervisor: auto", func(s *specv1.VirtualMachineSpec) bool { return s.Hypervisor == "kvm" }},
		{"kvm", "amd64", "hypervisor: emulation", func(s *specv1.VirtualMachineSpec) bool { return s.Hypervisor == "emulation" }},
		{"kvm", "amd64", "cpu: {model: Nehalem, cores: 4}", func(s *specv1.VirtualMachineSpec) bool {
			return s.Cpu.Model == "Nehalem" && s.Cpu.Cores == 4 && s.Cpu.Sockets == 1
		}},
		{"kvm", "amd64", "devices: {console: false}", func(s *specv1.VirtualMachineSpec) bool {
			return !s.Devices.GetConsole() && s.Devices.GetEntropy() && s.Devices.Watchdog == nil
		}},
		{"kvm", "amd64", "memory: {hugePages: {pageSize: 2Mi}}", func(s *specv1.VirtualMachineSpec) bool {
			return !s.Devices.GetBalloon() && s.Devices.Balloon != nil && s.Memory.Size == "512Mi"
		}},
		{"kvm", "amd64", "hostDevices: [{pciAddress: '0000:01:00.0'}]", func(s *specv1.VirtualMachineSpec) bool { return !s.Devices.GetBalloon() }},
		{"kvm", "amd64", "disks: [{path: /a}, {path: /b}]", func(s *specv1.VirtualMachineSpec) bool {
			return s.Disks[0].BootOrder == 1 && s.Disks[1].BootOrder == 2
		}},
		{"kvm", "amd64", "disks: [{path: /a}, {path: /b, bootOrder: 1}]", func(s *specv1.VirtualMachineSpec) bool {
			return s.Disks[0].BootOrder == 0 && s.Disks[1].BootOrder == 1
		}},
		{"kvm", "amd64", "disks: [{path: /a, name: disk1}, {path: /b}]", func(s *specv1.VirtualMachineSpec) bool {
			return s.Disks[0].Name == "disk1" && s.Disks[1].Name == "disk1-1"
		}},
		{"kvm", "arm64", "devices: {tpm: {socket: /a}}", func(s *specv1.VirtualMachineSpec) bool { return s.Devices.Tpm.Model == TPMTIS }},
		{"kvm", "amd64", "cpu: {cores: 2}", func(s *specv1.VirtualMachineSpec) bool { return s.Cpu.MaxVcpus == 0 && VCPULimit(s.Cpu) == 2 }},
		{"kvm", "amd64", "disks: [{path: /a}]\nnetworks: [{bootOrder: 1}]", func(s *specv1.VirtualMachineSpec) bool { return s.Disks[0].BootOrder == 0 }},
		{"kvm", "amd64", "disks: [{path: /a}, {path: /b, errorPolicy: report}]", func(s *specv1.VirtualMachineSpec) bool {
			return s.Disks[0].ErrorPolicy == ErrorStop && s.Disks[1].ErrorPolicy == ErrorReport
		}},
		{"kvm", "amd64", "devices: {inputs: [{name: input1}, {type: keyboard, bus: virtio}], video: {}}", func(s *specv1.VirtualMachineSpec) bool {
			in := s.Devices.Inputs
			return in[0].Type == InputTablet && in[0].Bus == BusUSB && in[1].Name == "input1-1" && in[1].Bus == BusVirtio && s.Devices.Video.Type == VideoVGA
		}},
		{"kvm", "amd64", "boot: {firmware: uefi}\ndevices: {video: {}}", func(s *specv1.VirtualMachineSpec) bool { return s.Devices.Video.Type == VideoBochs }},
		{"kvm", "arm64", "devices: {video: {}}", func(s *specv1.VirtualMachineSpec) bool { return s.Devices.Video.Type == VideoVirtio }},
		{"kvm", "amd64", "features: {hyperv: {synicTimerDirect: true, tlbflushDirect: true}}", func(s *specv1.VirtualMachineSpec) bool {
			h := s.Features.Hyperv
			return h.GetSynicTimer() && h.GetSynic() && h.GetVpindex() && h.GetTlbflush() && h.GetVapic() && h.Ipi == nil && s.Clock.Hyperv.GetPresent()
		}},
		{"kvm", "amd64", "features: {hyperv: {relaxed: true}}", func(s *specv1.VirtualMachineSpec) bool { return s.Features.Hyperv.Vpindex == nil && s.Clock == nil }},
		{"kvm", "amd64", "stopGracePeriod: 0s", func(s *specv1.VirtualMachineSpec) bool { return s.StopGracePeriod.Seconds == 0 }},
	} {
		where := target()
		where.Hypervisor, where.Arch, where.Defaults = c.hypervisor, c.arch, ownDefaults(c.arch)
		s := Default(parse(t, "name: a\n"+c.yaml), where, BaseLayers())
		if !c.check(s) {
			t.Errorf("%s/%s %q became %v", c.hypervisor, c.arch, c.yaml, s)
		}
	}
}

// TestLayerOrder: the most specific wins, each fills what is unset, and the user
// before them all.
func TestLayerOrder(t *testing.T) {
	layer := func(machine, model, size string) *specv1.VirtualMachineSpec {
		return &specv1.VirtualMachineSpec{MachineType: machine, Cpu: &specv1.CPU{Model: model}, Memory: &specv1.Memory{Size: size}}
	}
	layers := Layers{
		"kvm/amd64": layer("composite", "", ""),
		"amd64":     layer("arch", "arch", ""),
		"kvm":       layer("hypervisor", "hypervisor", "2Gi"),
		"":          {MachineType: "base", Memory: &specv1.Memory{Size: "1Gi"}, Labels: map[string]string{"a": "b"}, Hypervisor: "base"},
		"arm64":     layer("wrong", "wrong", "wrong"),
	}
	where := target()
	where.Defaults.Layer = layer("vmm", "", "")
	where.Defaults.Layer.Boot = &specv1.Boot{Firmware: "vmm"}
	layers["amd64"].Boot = &specv1.Boot{Firmware: "arch"}
	s := Default(parse(t, "name: a\nhypervisor: kvm\n"), where, layers)
	if s.Boot.Firmware != "vmm" {
		t.Errorf("a firmware of %q, want the VMM's", s.Boot.Firmware)
	}
	if s.MachineType != "composite" || s.Cpu.Model != "arch" || s.Memory.Size != "2Gi" || s.Labels["a"] != "b" || s.Hypervisor != "kvm" {
		t.Errorf("filled to %v", s)
	}
	s.Labels["a"] = "changed"
	s.Memory.Size, s.Boot.Firmware = "changed", "changed"
	if layers[""].Labels["a"] != "b" || layers["kvm"].Memory.Size != "2Gi" || where.Defaults.Layer.Boot.Firmware != "vmm" {
		t.Error("the result shares memory with the layers")
	}
}

// TestVMMWithoutDefaults: what one VMM brings is no default of another's.
func TestVMMWithoutDefaults(t *testing.T) {
	where := target()
	where.VMM, where.Defaults = "other", VMMDefaults{}
	s := Default(parse(t, "name: a\ndisks: [{path: /a, type: cdrom}]\nnetworks: [{}]\ndevices: {watchdog: {}}\n"), where, BaseLayers())
	want := parse(t, `
name: a
hypervisor: kvm
vmm: other
cpu: {sockets: 1, cores: 1, threads: 1}
memory: {size: 512Mi}
disks: [{name: disk0, path: /a, format: raw, type: cdrom, cache: none, readOnly: true, bootOrder: 1}]
devices: {console: true, entropy: true, balloon: true, watchdog: {action: reset}}
stopGracePeriod: 30s
`)
	want.Networks = []*specv1.NetworkInterface{{Name: "net0", Model: NetVirtio, Mac: MAC(where.ID, 0)}}
	if !proto.Equal(s, want) {
		t.Errorf("completed:\n%v\nwant\n%v", s, want)
	}
}

func TestMAC(t *testing.T) {
	seen := make(map[string]bool)
	for _, id := range []string{"a", "b"} {
		for i := range MaxInterfaces {
			mac := MAC(id, i)
			if seen[mac] || mac[:9] != "52:54:00:" || mac != MAC(id, i) {
				t.Errorf("MAC(%q, %d) is %s", id, i, mac)
			}
			seen[mac] = true
		}
	}
}

// TestPodNetworkDefaults: KubeVirt's addresses, for a masquerade alone.
func TestPodNetworkDefaults(t *testing.T) {
	s := Default(parse(t, "name: a\nnetworks: [{pod: {ports: [{first: 80}], fallback: {ports: [{hostPort: 80, guestPort: 80}]}}}, {pod: {binding: bridge, interface: net1}}]"), target(), BaseLayers())
	want := parse(t, "name: a\nnetworks: [{pod: {binding: masquerade, interface: eth0, cidr: 10.0.2.0/24, ipv6Cidr: 'fd10:0:2::/120', queues: 1, ports: [{protocol: tcp, first: 80, last: 80}], "+
		"fallback: {ports: [{protocol: tcp, hostAddress: 127.0.0.1, hostPort: 80, guestPort: 80}]}}}, {pod: {binding: bridge, interface: net1, queues: 1}}]")
	for i, n := range want.Networks {
		if got := s.Networks[i].GetPod(); !proto.Equal(got, n.GetPod()) {
			t.Errorf("networks[%d].pod is %v, want %v", i, got, n.GetPod())
		}
	}
}
