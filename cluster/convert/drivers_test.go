package convert_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/cluster/convert"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/described"
)

// TestStackWithADriver: instances of a VMM that a stack brings are converted by what its driver said of it: they
// have nothing that it lacks unless they ask for it, and are refused for that by their field.
func TestStackWithADriver(t *testing.T) {
	lean := described.VMM{ID: "microvm", Machines: map[string]described.Machine{"amd64": {Traits: vmm.Traits{Disks: []string{"virtio"}, WithoutEntropy: true}}}}
	for _, c := range []struct {
		name, instance string
		brought        []described.VMM
		refused        string // empty: it is admitted
	}{
		{"the usual", "domain: {devices: {disks: [{name: a}]}, firmware: {kernelBoot: {container: {image: a, kernelPath: /k}}}}\nvolumes: [{name: a, emptyDisk: {capacity: 1Mi}}]", []described.VMM{lean}, ""},
		{"a bus that it lacks", "domain: {devices: {disks: [{name: a, disk: {bus: sata}}]}}\nvolumes: [{name: a, emptyDisk: {capacity: 1Mi}}]", []described.VMM{lean}, "disks[0].bus"},
		{"a bus that it may have, as nothing is known of it", "domain: {devices: {disks: [{name: a, disk: {bus: sata}}]}}\nvolumes: [{name: a, emptyDisk: {capacity: 1Mi}}]", []described.VMM{{ID: "microvm"}}, ""},
		{"without the stack", "domain: {}", nil, "vmm"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := input(t, c.instance)
			in.Configuration.Stack.VMMs = c.brought
			in.Instance.Annotations = map[string]string{contract.AnnotationVMM: "microvm"}
			err := convert.Faults(in)
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("refused with %v, want %q", err, c.refused)
				}
				return
			}
			if err != nil {
				t.Error(err)
			}
			s, _ := converted(t, in)
			if s.GetDevices().GetVideo() != nil || s.GetMachineType() != "" {
				t.Errorf("it has video %v, machine type %q that nobody asked for", s.GetDevices().GetVideo(), s.GetMachineType())
			}
		})
	}
	in := input(t, "domain: {}")
	in.Configuration.Stack.VMMs = []described.VMM{lean}
	if got, want := convert.VMMs(in.Configuration).Names(), []string{"qemu", "cloud-hypervisor", "microvm"}; !slices.Equal(got, want) {
		t.Errorf("VMMs are %v, want %v", got, want)
	}
}
