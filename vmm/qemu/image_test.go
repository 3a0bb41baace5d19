package qemu_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu"
	"github.com/vmlet/vmlet/vmm/qemu/qemutest"
)

// TestManifestAndCheckImage go together: what Manifest says passes where it was
// made, and each thing that doesn't fit is refused by its name.
func TestManifestAndCheckImage(t *testing.T) {
	info := qemutest.Fixture(t, "testdata", "7.2")
	request := qemutest.Case{YAML: qemutest.KernelBoot + "cpu: {model: Skylake-Server-v4, features: [{name: umip}, {name: avx2, policy: disable}]}\n"}.Request(info)
	m, err := qemu.QEMU{}.Manifest(request)
	if err != nil {
		t.Fatal(err)
	}
	if m.MachineType != "pc-q35-7.2" || m.Accelerator != "emulation" || m.MemorySize != 512<<20 || m.Layout != memory.LayoutRaw ||
		!slices.Equal(m.CPU.Features, []string{"umip"}) || len(m.Regions) != 1 || m.Regions[0].Size != 512<<20 {
		t.Errorf("manifest %+v", m)
	}
	if back, err := spec.Parse(m.Specification, "manifest"); err != nil || back.GetName() != "web-1" {
		t.Errorf("the manifest's specification: %v, %v", back, err)
	}
	for name, c := range map[string]struct {
		info   string
		change func(m *memory.Manifest, info *vmm.Info)
		want   []string // in the error, in order; none: there is no error
	}{
		"where it was made": {change: func(*memory.Manifest, *vmm.Info) {}},
		"a later QEMU":      {info: "10.0", change: func(*memory.Manifest, *vmm.Info) {}},
		"another VMM":       {change: func(m *memory.Manifest, _ *vmm.Info) { m.VMM.Name = "cloud-hypervisor" }, want: []string{"cloud-hypervisor"}},
		"an older QEMU":     {change: func(m *memory.Manifest, _ *vmm.Info) { m.VMM.Version = "10.0.2" }, want: []string{"10.0.2", "7.2.22"}},
		"no version":        {change: func(m *memory.Manifest, _ *vmm.Info) { m.VMM.Version = "x" }, want: []string{`"x"`}},
		"an alias":          {change: func(m *memory.Manifest, _ *vmm.Info) { m.MachineType = "q35" }, want: []string{`machine type "q35"`}},
		"no hypervisor":     {change: func(m *memory.Manifest, _ *vmm.Info) { m.Accelerator = "mshv" }, want: []string{`hypervisor "mshv"`, "kvm"}},
		"a broken hypervisor": {change: func(m *memory.Manifest, info *vmm.Info) {
			m.Accelerator = "kvm"
			info.Details.(*qemu.Details).Accelerators["kvm"] = qemu.Accelerator{Failure: "permission denied"}
		}, want: []string{"kvm", "permission denied"}},
		"an unknown model": {change: func(m *memory.Manifest, _ *vmm.Info) { m.CPU.Model = "Pentium9" }, want: []string{"Pentium9"}},
		"a feature less":   {change: func(m *memory.Manifest, _ *vmm.Info) { m.CPU.Features = []string{"umip", "frob"} }, want: []string{"frob"}},
		"a model with less": {change: func(m *memory.Manifest, _ *vmm.Info) { m.VMM.Extra = nil },
			want: []string{"Skylake-Server-v4", "avx512f", "pcid"}},
		"all at once": {change: func(m *memory.Manifest, _ *vmm.Info) {
			m.VMM.Version, m.MachineType, m.CPU.Model = "99.0.0", "pc-q35-99.0", "Pentium9"
		}, want: []string{"99.0.0", "pc-q35-99.0", "Pentium9"}},
	} {
		t.Run(name, func(t *testing.T) {
			here, changed := qemutest.Fixture(t, "testdata", cmp.Or(c.info, "7.2")), m
			c.change(&changed, &here)
			err := qemu.CheckImage(here, &changed)
			if (err != nil) != (c.want != nil) {
				t.Fatalf("error %v, want one with %q", err, c.want)
			}
			text := ""
			if err != nil {
				text = err.Error()
			}
			for _, part := range c.want {
				_, after, found := strings.Cut(text, part)
				if !found {
					t.Fatalf("error %v, want one with %q", err, c.want)
				}
				text = after
			}
		})
	}
}
