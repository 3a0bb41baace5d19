package cloudhypervisor_test

import (
	"strings"
	"testing"

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
		{"machineType: q35\nboot: {firmware: bios}", "machineType boot.firmware"},
		{"cpu: {model: Nehalem, features: [{name: avx2}]}", "cpu.model cpu.features[0].name"},
		{"disks: [{path: /a, type: cdrom}, {path: /b, bus: scsi}]", "disks[0].type disks[1].bus"},
		{"networks: [{}, {user: {}}, {tap: {}, model: e1000e}]", "networks[0].tap networks[1].user networks[2].model"},
		{"devices: {guestAgent: true, watchdog: {model: i6300esb}}", "devices.guestAgent devices.watchdog.model"},
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
