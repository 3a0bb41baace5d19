package standard_test

import (
	"slices"
	"testing"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/hypervisor/kvm"
	"github.com/vmlet/vmlet/hypervisor/standard"
	"github.com/vmlet/vmlet/sysfs"
)

func TestStandard(t *testing.T) {
	r := standard.Registry(sysfs.Roots{Dev: "/made/up"})
	if got, want := r.Names(), []string{"kvm", "mshv", "emulation"}; !slices.Equal(got, want) {
		t.Errorf("names %q, want %q", got, want)
	}
	want := map[string][3]string{
		"kvm":       {"/made/up/kvm", "kvm", "kvm"},
		"mshv":      {"/made/up/mshv", "mshv", "hyperv"},
		"emulation": {"", "tcg", "qemu"},
	}
	for _, h := range r.All() {
		if got := [3]string{h.Device(), h.Accelerator(), h.VirtType()}; got != want[h.Name()] {
			t.Errorf("%s: device, accelerator, virt type %q, want %q", h.Name(), got, want[h.Name()])
		}
	}
	if _, ok := r.Get("xen"); ok {
		t.Error("there is a hypervisor called xen")
	}
	if (kvm.KVM{}).Device() != "/dev/kvm" {
		t.Errorf("without a root the device is %s", kvm.KVM{}.Device())
	}
}

// Whatever this machine's KVM is like, automatic choice takes it only if it works.
func TestRealChoice(t *testing.T) {
	r := standard.Registry(sysfs.Roots{})
	h, _ := r.Get(hypervisor.NameKVM)
	s := h.Check(t.Context())
	if s.Level == hypervisor.Unusable {
		t.Skip(s.Sentence())
	}
	chosen, reason, err := r.Choose(t.Context(), hypervisor.NameAuto, nil)
	if err != nil {
		t.Fatal(err)
	}
	if (chosen.Name() == hypervisor.NameKVM) != (s.Level == hypervisor.Works) {
		t.Errorf("auto chose %s: %s", chosen.Name(), reason)
	}
	if h, _, err := r.Choose(t.Context(), hypervisor.NameKVM, nil); err != nil || h.Name() != hypervisor.NameKVM {
		t.Errorf("kvm by name: %v", err)
	}
}
