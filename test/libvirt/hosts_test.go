package libvirt

import (
	"slices"
	"testing"

	"github.com/vmlet/vmlet/hypervisor/emulation"
	"github.com/vmlet/vmlet/test/everything"
)

// TestMadeUpHosts: vmlet names the processors of others as libvirt does. The
// hosts are made of QEMU's models, with the model numbers and steppings of real
// processors of each kind, and features more or less.
func TestMadeUpHosts(t *testing.T) {
	needLibvirt(t)
	if testing.Short() {
		t.Skip("takes libvirt some seconds a host")
	}
	// Of each kind of what a name follows from one: old and new, both vendors, a feature
	// more or less, a stepping, and QEMU's own.
	short := []string{
		"Penryn", "Haswell without TSX", "Kaby Lake", "Skylake SP and PT", "Cascade Lake", "Ice Lake SP without TSX",
		"Piledriver", "Naples with IBPB", "Milan", "kvm64",
	}
	all := programs(t)
	if len(all) == 0 {
		t.Skip("needs a QEMU")
	}
	p := all[0]
	d := p.start(t)
	d.known(t)
	for name, host := range map[string]madeUpHost{
		"Penryn":                  {Model: "Penryn"},
		"Nehalem EX":              {Model: "Nehalem", Props: map[string]any{"model": 46}},
		"Westmere EP":             {Model: "Westmere-IBRS"},
		"Sandy Bridge EP":         {Model: "SandyBridge-IBRS", Props: map[string]any{"model": 45}},
		"Ivy Bridge EP":           {Model: "IvyBridge", Props: map[string]any{"model": 62}},
		"Haswell without TSX":     {Model: "Haswell-noTSX", Props: map[string]any{"model": 63}},
		"Haswell with IBRS":       {Model: "Haswell-noTSX-IBRS", Props: map[string]any{"model": 63, "ssbd": true}},
		"Broadwell EP":            {Model: "Broadwell-IBRS", Props: map[string]any{"model": 79}},
		"Kaby Lake":               {Model: "Skylake-Client-IBRS", Props: map[string]any{"model": 142, "hle": false, "rtm": false}},
		"Skylake SP":              {Model: "Skylake-Server"},
		"Skylake SP and PT":       {Model: "Skylake-Server-IBRS", Props: map[string]any{"ssbd": true, "md-clear": true}},
		"Skylake SP without TSX":  {Model: "Skylake-Server-noTSX-IBRS"},
		"Cascade Lake":            {Model: "Cascadelake-Server", Props: map[string]any{"stepping": 7, "arch-capabilities": true, "mds-no": true}},
		"Cascade Lake, no TSX":    {Model: "Cascadelake-Server-noTSX", Props: map[string]any{"stepping": 7}},
		"Cooper Lake":             {Model: "Cooperlake", Props: map[string]any{"stepping": 11}},
		"Ice Lake SP":             {Model: "Icelake-Server", Props: map[string]any{"model": 106, "stepping": 6}},
		"Ice Lake SP without TSX": {Model: "Icelake-Server-noTSX", Props: map[string]any{"model": 106, "stepping": 6}},
		"Snow Ridge":              {Model: "Snowridge"},
		"Bulldozer":               {Model: "Opteron_G4"},
		"Piledriver":              {Model: "Opteron_G5"},
		"Naples":                  {Model: "EPYC"},
		"Naples with IBPB":        {Model: "EPYC-IBPB", Props: map[string]any{"virt-ssbd": true}},
		"Rome":                    {Model: "EPYC-Rome", Props: map[string]any{"amd-ssbd": true}},
		"Milan":                   {Model: "EPYC-Milan", Props: map[string]any{"vaes": true, "vpclmulqdq": true}},
		"Dhyana":                  {Model: "Dhyana"},
		"kvm64":                   {Model: "kvm64"},
		"qemu64":                  {Model: "qemu64"},
	} {
		t.Run(name, func(t *testing.T) {
			if !slices.Contains(short, name) {
				everything.OrSkip(t, "another host is like it")
			}
			script := host.script(t, p.binary)
			libvirt := d.ask(t, script, "qemu")
			for _, a := range askVMLet(t, script, emulation.Emulation{}).GetAccelerators() {
				vmlet := under(a)
				if !slices.Equal(vmlet[hostModel], libvirt[hostModel]) || !slices.Equal(vmlet[hostVendor], libvirt[hostVendor]) {
					t.Errorf("vmlet says %s %s (and %v, not %v), libvirt %s %s (and %v, not %v)",
						vmlet[hostVendor], vmlet[hostModel], vmlet[hostRequires], vmlet[hostDisables],
						libvirt[hostVendor], libvirt[hostModel], libvirt[hostRequires], libvirt[hostDisables])
				}
				if extra := missing(libvirt[cpuFeature], vmlet[cpuFeature]); len(extra) > 0 {
					t.Errorf("libvirt alone has the features %v", extra)
				}
			}
		})
	}
}
