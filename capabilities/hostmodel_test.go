package capabilities

import (
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"slices"
	"testing"
)

// TestMissHostModels: what an accelerator that failed would have said of the
// models is not known of the others either, so that their labels stay.
func TestMissHostModels(t *testing.T) {
	models := []*capabilitiesv1.CpuModel{{Name: "Haswell"}}
	for _, test := range []struct {
		host *capabilitiesv1.HostCpuModel
		want []string
	}{
		{nil, []string{"vmms.qemu.accelerators.emulation", "vmms.qemu.accelerators.kvm.hostCpuModel"}},
		{&capabilitiesv1.HostCpuModel{Name: "Haswell"}, []string{"vmms.qemu.accelerators.emulation"}},
	} {
		c := &collection{doc: &capabilitiesv1.Capabilities{Hypervisors: []*capabilitiesv1.HypervisorCapabilities{{Name: "emulation", State: capabilitiesv1.State_STATE_WORKS}, {Name: "kvm", Device: "/dev/kvm", State: capabilitiesv1.State_STATE_WORKS}}}}
		c.missAccelerators(&capabilitiesv1.VmmCapabilities{Name: "qemu", BuiltAccelerators: []string{"kvm", "tcg"}, Accelerators: []*capabilitiesv1.AcceleratorCapabilities{
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
