package capabilities

import (
	"slices"
	"testing"

	vmletv1 "github.com/vmlet/vmlet/proto/vmlet/v1"
)

// TestMissHostModels: what an accelerator that failed would have said of the
// models is not known of the others either, so that their labels stay.
func TestMissHostModels(t *testing.T) {
	models := []*vmletv1.CpuModel{{Name: "Haswell"}}
	for _, test := range []struct {
		host *vmletv1.HostCpuModel
		want []string
	}{
		{nil, []string{"vmms.qemu.accelerators.emulation", "vmms.qemu.accelerators.kvm.hostCpuModel"}},
		{&vmletv1.HostCpuModel{Name: "Haswell"}, []string{"vmms.qemu.accelerators.emulation"}},
	} {
		c := &collection{doc: &vmletv1.Capabilities{Hypervisors: []*vmletv1.HypervisorCapabilities{{Name: "emulation", State: "works"}, {Name: "kvm", Device: "/dev/kvm", State: "works"}}}}
		c.missAccelerators(&vmletv1.VmmCapabilities{Name: "qemu", BuiltAccelerators: []string{"kvm", "tcg"}, Accelerators: []*vmletv1.AcceleratorCapabilities{
			{Hypervisor: "emulation", Accelerator: "tcg", Reason: "it hung"},
			{Hypervisor: "kvm", Accelerator: "kvm", Usable: true, CpuModels: models, HostCpuModel: test.host},
		}})
		var got []string
		for _, u := range c.unknown {
			got = append(got, u.GetFact())
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}
