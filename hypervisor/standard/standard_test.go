package standard_test

import (
	"slices"
	"testing"

	"github.com/vmlet/vmlet/hypervisor/standard"
)

func TestStandard(t *testing.T) {
	r := standard.Registry()
	if got, want := r.Names(), []string{"kvm", "mshv", "emulation"}; !slices.Equal(got, want) {
		t.Errorf("names %q, want %q", got, want)
	}
	want := map[string][2]string{"kvm": {"kvm", "kvm"}, "mshv": {"mshv", "hyperv"}, "emulation": {"tcg", "qemu"}}
	for _, k := range r.All() {
		if got := [2]string{k.Accelerator(), k.VirtType()}; got != want[k.Name()] {
			t.Errorf("%s: accelerator, virt type %q, want %q", k.Name(), got, want[k.Name()])
		}
	}
	if _, ok := r.Get("xen"); ok {
		t.Error("there is a hypervisor called xen")
	}
}
