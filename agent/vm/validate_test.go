package vm

import (
	"errors"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/hypervisor"
	"github.com/vmlet/vmlet/hypervisor/emulation"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
)

// TestCreateRefuses: every fault at once, a hypervisor's own among them.
func TestCreateRefuses(t *testing.T) {
	a := newWorld(t).start()
	for _, c := range []struct {
		s    *specv1.VirtualMachineSpec
		want string
	}{
		{&specv1.VirtualMachineSpec{Name: "A", Hypervisor: "xen", MachineType: "a b"}, "name hypervisor machineType"},
		{&specv1.VirtualMachineSpec{Name: "A", Hypervisor: "emulation", Cpu: &specv1.CPU{Model: "host"}}, "name cpu.model"},
	} {
		_, err := a.Create(t.Context(), c.s)
		var faults spec.FieldErrors
		if !errors.As(err, &faults) {
			t.Fatalf("%v: error %v, want FieldErrors", c.s, err)
		}
		var fields []string
		for _, f := range faults {
			fields = append(fields, f.Field)
		}
		if got := strings.Join(fields, " "); got != c.want {
			t.Errorf("%v: faults of %q, want %q", c.s, got, c.want)
		}
	}
}

// TestAutoIsValidatedAsChosen: what the hypervisor that is chosen can't do is found before anything is made.
func TestAutoIsValidatedAsChosen(t *testing.T) {
	w := newWorld(t)
	a := w.start()
	registry, err := hypervisor.NewLocal(emulation.Emulation{})
	if err != nil {
		t.Fatal(err)
	}
	a.Platform.node.Hypervisors = registry
	if _, err := a.Create(t.Context(), &specv1.VirtualMachineSpec{Name: "a", Cpu: &specv1.CPU{Model: "host"}}); err != nil {
		t.Fatal(err)
	}
	_, err = a.Start(t.Context(), "a", StartOptions{}, nil)
	var faults spec.FieldErrors
	if !errors.As(err, &faults) || len(faults) != 1 || faults[0].Field != "cpu.model" {
		t.Errorf("starting: %v, want a fault of cpu.model", err)
	}
	if held := w.Holding(); held != nil {
		t.Errorf("still taken: %q", held)
	}
}

// TestConfiguredHypervisor: "auto" is what the node's configuration says, a
// specification's own word counts more, and an unknown configured name is kvm.
func TestConfiguredHypervisor(t *testing.T) {
	for _, c := range []struct{ configured, said, want string }{
		{"", "", "auto"},
		{"auto", "auto", "auto"},
		{"emulation", "", "emulation"},
		{"emulation", "auto", "emulation"},
		{"emulation", "kvm", "kvm"},
		{"hyperv-layered", "", "kvm"},
	} {
		w := newWorld(t)
		w.Hypervisor = c.configured
		a := w.start()
		if got := a.Platform.hypervisorFor(&specv1.VirtualMachineSpec{Hypervisor: c.said}); got != c.want {
			t.Errorf("configured %q, said %q: %q, want %q", c.configured, c.said, got, c.want)
		}
	}
}
