package cloudhypervisor_test

import (
	"strings"
	"testing"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/vmtest"

	"google.golang.org/protobuf/proto"
)

// TestDefaultsAreAccepted: what is filled in for a VM can be planned, and is filled
// in once.
func TestDefaultsAreAccepted(t *testing.T) {
	for _, yaml := range []string{
		"", vmtest.KernelBoot, "devices: {watchdog: {}, vsock: {cid: 3}}", "networks: [{tap: {}}]", "disks: [{path: /a}, {path: /b}]",
		"cloudInit: {userData: x}", "memory: {size: 512Mi, hugePages: {pageSize: 2Mi}}",
	} {
		for _, arch := range []string{spec.ArchAMD64, spec.ArchARM64} {
			for _, hypervisor := range []string{spec.HypervisorKVM, spec.HypervisorMSHV} {
				s := vmtest.Complete(t, yaml, arch, hypervisor)
				if !proto.Equal(s, vmtest.WithDefaults(s, arch, hypervisor)) {
					t.Errorf("%q: completing it again changes it: %v", yaml, s)
				}
				if faults := new(cloudhypervisor.CloudHypervisor).Validate(s, arch); faults != nil {
					t.Errorf("%q on %s: %v", yaml, arch, faults)
				}
				if _, err := new(cloudhypervisor.CloudHypervisor).Plan(vmtest.Case{YAML: yaml, Arch: arch, Hypervisor: hypervisor, Change: vmtest.Taps(0)}.Request(t)); err != nil {
					t.Errorf("%q on %s: %v", yaml, arch, err)
				}
			}
		}
	}
}

// TestValidate: what can be told without the program, and before a hypervisor is chosen.
func TestValidate(t *testing.T) {
	for _, c := range []struct{ yaml, fields string }{
		{"hypervisor: emulation", "hypervisor"},
		{"hypervisor: emulation\ncpu: {model: max}", "hypervisor"}, // as it is by default there
		{"hypervisor: emulation\ncpu: {model: Nehalem}", "hypervisor cpu.model"},
		{"cpu: {model: max}", "cpu.model"},
		{"cpu: {dedicated: {isolateEmulatorThread: true}}", ""},
		{"cpu: {dedicated: {}}\nmemory: {size: 4Mi, hugePages: {pageSize: 2Mi}}\nnuma: {guestMappingPassthrough: true}", "numa.guestMappingPassthrough"},
		{"machineType: q35\nboot: {firmware: bios}", "machineType boot.firmware"},
		{"cpu: {model: Nehalem, features: [{name: avx2}]}", "cpu.model cpu.features[0].name"},
		{"disks: [{path: /a, type: cdrom}, {path: /b, bus: scsi}]", "disks[0].type disks[1].bus"},
		{"disks: [{path: /a, format: qcow2, backingFiles: [{path: " + contract.SocketsFolder + "/root.sock}]}]", "disks[0].backingFiles[0].path"},
		{"disks: [{path: /a, shareable: true}]", "disks[0].shareable"},
		{"networks: [{}, {user: {}}, {tap: {}, model: e1000e}]", "networks[0].tap networks[1].user networks[2].model"},
		{"devices: {guestAgent: true, watchdog: {model: i6300esb}}", "devices.guestAgent devices.watchdog.model"},
		{"system: {uuid: 5d307ca9-b3ef-428c-8861-06e72d69f223, serial: s, sku: x, assetTag: y}", "system.sku system.assetTag"},
		{"features: {acpi: false, apic: false, smm: true, kvmHidden: true, pvSpinlock: false, hyperv: {relaxed: true}}\nonReboot: end",
			"features.acpi features.apic features.smm features.kvmHidden features.pvSpinlock features.hyperv onReboot"},
		{"clock: {offsetSeconds: 1, hpet: {present: true}, kvm: {present: false}, pit: {tickPolicy: delay}, rtc: {track: guest}, hyperv: {present: true}}",
			"clock.offsetSeconds clock.hpet.present clock.kvm.present clock.pit.tickPolicy clock.rtc.track clock.hyperv.present"},
		{"clock: {timezone: Europe/Berlin}\ndevices: {inputs: [{}], video: {}}", "clock.timezone devices.video devices.inputs"},
		{"disks: [{path: /a, io: native, errorPolicy: stop}]\nnetworks: [{tap: {}, bootOrder: 1}]", "disks[0].io disks[0].errorPolicy networks[0].bootOrder"},
		{"features: {acpi: true, apic: true, smm: false, kvmHidden: false, hyperv: {relaxed: false}}\nonReboot: restart\ncpu: {features: [{name: avx, policy: optional}]}\n" +
			"clock: {offsetSeconds: 0, hpet: {present: false}, kvm: {present: true}, pit: {present: false}, rtc: {present: true, track: wall}}\ndisks: [{path: /a, errorPolicy: report}]", ""},
		{"hypervisor: auto\nboot: {firmware: uefi}\ncloudInit: {userData: x}\nnetworks: [{tap: {}}]", ""},
	} {
		s, err := spec.Parse([]byte("name: a\n"+c.yaml), "test")
		if err != nil {
			t.Fatal(err)
		}
		s = spec.Default(s, spec.Target{Arch: spec.ArchAMD64, Defaults: new(cloudhypervisor.CloudHypervisor).Defaults(spec.ArchAMD64)}, spec.BaseLayers())
		var fields []string
		for _, f := range new(cloudhypervisor.CloudHypervisor).Validate(s, spec.ArchAMD64) {
			fields = append(fields, f.Field)
			if f.UseVMM != spec.VMMQEMU || !strings.HasSuffix(f.Error(), ", or use vmm: qemu") {
				t.Errorf("%q doesn't say what to use instead", f.Error())
			}
		}
		if got := strings.Join(fields, " "); got != c.fields {
			t.Errorf("%q: faults of %q, want %q", c.yaml, got, c.fields)
		}
	}
}
