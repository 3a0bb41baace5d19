package deploy

import (
	"os"
	"testing"

	"sigs.k8s.io/yaml"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/cluster/validation"
	"github.com/vmlet/vmlet/test/guest"
)

// TestVirtualMachineExample: the example has no field that isn't one, and admission accepts
// all of them.
func TestVirtualMachineExample(t *testing.T) {
	text, err := os.ReadFile("examples/vm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var vm kubevirtv1.VirtualMachine
	if err := yaml.UnmarshalStrict(text, &vm); err != nil {
		t.Fatal(err)
	}
	faults, warnings := validation.Machine(&vm, nil, validation.Request{Configuration: configuration.Default()})
	if len(faults) > 0 || len(warnings) > 0 {
		t.Errorf("faults are %v and warnings %q, want none", faults, warnings)
	}
	if got := vm.Spec.Template.Spec.Domain.Firmware.KernelBoot.KernelArgs; got != guest.SmallDiskCmdline {
		t.Errorf("the kernel's arguments are %q, and the disk wants %q", got, guest.SmallDiskCmdline)
	}
}
