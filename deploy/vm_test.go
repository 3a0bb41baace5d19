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

// TestVirtualMachineExamples: they have no field that isn't one, and admission accepts all of
// them.
func TestVirtualMachineExamples(t *testing.T) {
	for _, file := range []string{"examples/vm.yaml", "examples/hibernate.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var vm kubevirtv1.VirtualMachine
		if err := yaml.UnmarshalStrict(text, &vm); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		vm.Namespace = "default"
		faults, warnings := validation.Machine(&vm, nil, validation.Request{Configuration: configuration.Default()})
		if len(faults) > 0 || len(warnings) > 0 {
			t.Errorf("%s: faults are %v and warnings %q, want none", file, faults, warnings)
		}
		if got := vm.Spec.Template.Spec.Domain.Firmware.KernelBoot.KernelArgs; got != guest.SmallDiskCmdline {
			t.Errorf("%s: the kernel's arguments are %q, and the disk wants %q", file, got, guest.SmallDiskCmdline)
		}
	}
}
