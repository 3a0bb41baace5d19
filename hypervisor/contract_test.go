package hypervisor

import (
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"slices"
	"strings"
	"testing"
)

// withLayers is a hypervisor with these defaults.
type withLayers struct {
	fake
	layers spec.Layers
}

func (w withLayers) Layers() spec.Layers { return w.layers }

// around wraps one, as the agent does to remember checks.
type around struct{ Hypervisor }

func (a around) Unwrap() Hypervisor { return a.Hypervisor }

func model(name string) *specv1.VirtualMachineSpec {
	return &specv1.VirtualMachineSpec{Cpu: &specv1.CPU{Model: name}}
}

func TestLayers(t *testing.T) {
	own := withLayers{fake{name: "sample"}, spec.Layers{"sample": model("general"), "sample/amd64": model("special")}}
	r, err := New(around{own}, fake{name: "plain"})
	if err != nil {
		t.Fatal(err)
	}
	layers := r.Layers()
	var keys []string
	for key := range layers {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	if want := []string{"", "sample", "sample/amd64"}; !slices.Equal(keys, want) {
		t.Errorf("layers under %q, want %q", keys, want)
	}
	delete(layers, "sample")
	if r.Layers()["sample"] == nil {
		t.Error("deleting from a result changed the registry")
	}
	for arch, want := range map[string]string{"amd64": "special", "arm64": "general"} {
		target := spec.Target{ID: "id", Hypervisor: "sample", VMM: "qemu", Arch: arch}
		if got := spec.Default(&specv1.VirtualMachineSpec{Name: "a"}, target, r.Layers()).GetCpu().GetModel(); got != want {
			t.Errorf("%s: the model is %q, want %q", arch, got, want)
		}
		if got := spec.Default(model("mine"), target, r.Layers()).GetCpu().GetModel(); got != "mine" {
			t.Errorf("%s: what was set became %q", arch, got)
		}
	}
}

// A hypervisor can't give defaults to another's machines, nor to all.
func TestLayersRefused(t *testing.T) {
	for _, key := range []string{"", "amd64", "kvm", "kvm/amd64", "sample/", "sample/a/b", "/sample", "samples", "Sample"} {
		if _, err := New(withLayers{fake{name: "sample"}, spec.Layers{key: model("x")}}); err == nil || !strings.Contains(err.Error(), "sample") {
			t.Errorf("defaults under %q: error %v", key, err)
		}
	}
	for _, choosing := range []*specv1.VirtualMachineSpec{{Name: "a"}, {Hypervisor: "kvm"}} {
		if _, err := New(withLayers{fake{name: "sample"}, spec.Layers{"sample": choosing}}); err == nil {
			t.Errorf("the default %v was accepted", choosing)
		}
	}
	for _, name := range []string{"amd64", "arm64", "a/b", "A", "a b", "a,b"} {
		if _, err := New(fake{name: name}); err == nil {
			t.Errorf("the name %q was accepted", name)
		}
	}
}

// picky refuses a machine type.
type picky struct{ fake }

func (picky) Validate(s *specv1.VirtualMachineSpec, arch string) (faults spec.FieldErrors) {
	if s.GetMachineType() != "" {
		faults.Add("machineType", "sample has none on %s", arch)
	}
	return faults
}

func TestRegistryValidate(t *testing.T) {
	r, err := New(around{picky{fake{name: "sample"}}}, fake{name: "kvm"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		s    *specv1.VirtualMachineSpec
		want string
	}{
		{&specv1.VirtualMachineSpec{Name: "a", Hypervisor: "sample"}, ""},
		{&specv1.VirtualMachineSpec{Name: "a", MachineType: "x"}, ""},
		{&specv1.VirtualMachineSpec{Name: "a", Hypervisor: "auto", MachineType: "x"}, ""},
		{&specv1.VirtualMachineSpec{Name: "a", Hypervisor: "kvm", MachineType: "x"}, ""},
		{&specv1.VirtualMachineSpec{Name: "A", Hypervisor: "sample", MachineType: "x"}, "name machineType"},
		{&specv1.VirtualMachineSpec{Name: "A", Hypervisor: "xen", MachineType: "x"}, "name hypervisor"},
	} {
		var fields []string
		for _, f := range r.Validate(c.s, "amd64") {
			fields = append(fields, f.Field)
			if f.Field == "hypervisor" && !strings.Contains(f.Message, "auto, sample or kvm") {
				t.Errorf("%q doesn't say what there is", f.Message)
			}
		}
		if got := strings.Join(fields, " "); got != c.want {
			t.Errorf("%v: faults of %q, want %q", c.s, got, c.want)
		}
	}
}

func TestDefault(t *testing.T) {
	with, err := New(fake{name: "mshv"}, fake{name: "kvm"})
	if err != nil {
		t.Fatal(err)
	}
	without, err := New(fake{name: "mshv"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		r                *Registry
		configured, want string
		warns            []string
	}{
		{with, "", "auto", nil},
		{with, "auto", "auto", nil},
		{with, "mshv", "mshv", nil},
		{with, "hyperv-layered", "kvm", []string{`"hyperv-layered"`, "mshv, kvm", "kvm is used instead"}},
		{without, "xen", "auto", []string{`"xen"`, "auto is used instead"}},
	} {
		got, warning := c.r.Default(c.configured)
		if got != c.want || (warning == "") != (c.warns == nil) {
			t.Errorf("%q became %q, warning %q; want %q", c.configured, got, warning, c.want)
		}
		for _, w := range c.warns {
			if !strings.Contains(warning, w) {
				t.Errorf("the warning %q doesn't say %q", warning, w)
			}
		}
	}
}

func TestCommonResources(t *testing.T) {
	const ram, over = 4 << 30, 100 << 20
	for _, c := range []struct {
		name    string
		f       ResourceFacts
		want    uint64
		reasons int
	}{
		{"ordinary", ResourceFacts{}, 0, 0},
		{"vfio", ResourceFacts{VFIODevices: 1}, ram + over + 1<<30, 1},
		{"several share a container", ResourceFacts{VFIODevices: 4}, ram + over + 1<<30, 1},
	} {
		c.f.MemoryBytes, c.f.OverheadBytes = ram, over
		if r := CommonResources(c.f); r.Memlock != c.want || len(r.Reasons) != c.reasons {
			t.Errorf("%s: %+v, want memlock %d and %d reasons", c.name, r, c.want, c.reasons)
		}
	}
	if r := CommonResources(ResourceFacts{MemoryBytes: ^uint64(0) - 5, OverheadBytes: 3, VFIODevices: 1}); r.Memlock != ^uint64(0) {
		t.Errorf("too much to count became %d", r.Memlock)
	}
}

func TestAs(t *testing.T) {
	if _, ok := As[Validator](around{around{picky{}}}); !ok {
		t.Error("a Validator within two others was not found")
	}
	if _, ok := As[Validator](around{fake{}}); ok {
		t.Error("a Validator was found where there is none")
	}
	if _, ok := As[Validator](nil); ok {
		t.Error("a Validator was found in nil")
	}
}
