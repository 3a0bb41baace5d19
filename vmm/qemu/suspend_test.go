package qemu_test

import (
	"strings"
	"testing"

	"github.com/vmlet/vmlet/contract"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/vmm/qemu"
)

// TestRefuseSuspend: a VM is refused by the field that its guest lacks S4 for.
func TestRefuseSuspend(t *testing.T) {
	agent := &specv1.Devices{GuestAgent: new(true)}
	for name, test := range map[string]struct {
		spec *specv1.VirtualMachineSpec
		want string // empty: not refused
	}{
		"q35":          {&specv1.VirtualMachineSpec{MachineType: "pc-q35-10.0", Devices: agent}, ""},
		"pc":           {&specv1.VirtualMachineSpec{MachineType: "pc-i440fx-10.0", Devices: agent}, ""},
		"q35's alias":  {&specv1.VirtualMachineSpec{MachineType: "q35", Devices: agent}, ""},
		"pc's alias":   {&specv1.VirtualMachineSpec{MachineType: "pc", Devices: agent}, ""},
		"virt's alias": {&specv1.VirtualMachineSpec{MachineType: "virt", Devices: agent}, "machineType: virt offers"},
		"with ACPI":    {&specv1.VirtualMachineSpec{MachineType: "pc-q35-10.0", Devices: agent, Features: &specv1.Features{Acpi: new(true)}}, ""},
		"without":      {&specv1.VirtualMachineSpec{MachineType: "pc-q35-10.0", Devices: agent, Features: &specv1.Features{Acpi: new(false)}}, "features.acpi: "},
		"microvm":      {&specv1.VirtualMachineSpec{MachineType: "microvm", Devices: agent}, "machineType: microvm offers"},
		"virt":         {&specv1.VirtualMachineSpec{MachineType: "virt-10.0", Devices: agent}, "machineType: virt-10.0 offers"},
		"no channel":   {&specv1.VirtualMachineSpec{MachineType: "pc-q35-10.0", Devices: &specv1.Devices{GuestAgent: new(false)}}, "devices.guestAgent: "},
	} {
		err := qemu.QEMU{}.RefuseSuspend(test.spec)
		if (err == nil) != (test.want == "") || err != nil && !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", name, err, test.want)
		}
		for _, f := range contract.FaultsOf(err) {
			if f.Reason != contract.FaultSaveInstead {
				t.Errorf("%s: reason %q, want %q", name, f.Reason, contract.FaultSaveInstead)
			}
			if strings.Contains(f.Text, "save") {
				t.Errorf("%s: %q has the advice", name, f.Text)
			}
		}
	}
}
