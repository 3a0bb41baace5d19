package probe_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/vmlet/vmlet/hypervisor"
	kvm "github.com/vmlet/vmlet/hypervisor/kvm/probe"
	"github.com/vmlet/vmlet/hypervisor/standard"
	"github.com/vmlet/vmlet/hypervisor/standard/probe"
	"github.com/vmlet/vmlet/sysfs"
)

// TestHypervisors: a node's hypervisors are those that are known without a node, in the same order, and say the same.
func TestHypervisors(t *testing.T) {
	node, known := probe.Hypervisors(sysfs.Roots{Dev: "/made/up"}), standard.Registry()
	if got, want := node.Names(), known.Names(); !slices.Equal(got, want) {
		t.Errorf("a node has %q, want %q", got, want)
	}
	if got, want := node.Words(), known.Words(); !slices.Equal(got, want) {
		t.Errorf("a node's are called %q, want %q", got, want)
	}
	if got, want := node.Layers(), known.Layers(); !reflect.DeepEqual(got, want) {
		t.Errorf("a node's defaults are %v, want %v", got, want)
	}
	for _, h := range node.All() {
		k, _ := known.Get(h.Name())
		if got, want := h.DeviceRequests(), k.DeviceRequests(); !slices.Equal(got, want) {
			t.Errorf("%s: a node's pods request %v, want %v", h.Name(), got, want)
		}
	}
}

// TestDevices: a device is below the root of the node.
func TestDevices(t *testing.T) {
	want := map[string]string{"kvm": "/made/up/kvm", "mshv": "/made/up/mshv", "emulation": ""}
	for _, h := range probe.Hypervisors(sysfs.Roots{Dev: "/made/up"}).All() {
		if got := h.Device(); got != want[h.Name()] {
			t.Errorf("%s: device %q, want %q", h.Name(), got, want[h.Name()])
		}
	}
	if got := (kvm.KVM{}).Device(); got != "/dev/kvm" {
		t.Errorf("without a root the device is %s", got)
	}
}

// Whatever this machine's KVM is like, automatic choice takes it only if it works.
func TestRealChoice(t *testing.T) {
	r := probe.Hypervisors(sysfs.Roots{})
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
