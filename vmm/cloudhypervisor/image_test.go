package cloudhypervisor_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/vmtest"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
)

// TestManifests: an image of each VM can be restored by the program that made it.
func TestManifests(t *testing.T) {
	for _, c := range vmtest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			req := c.Request(t)
			m, err := new(cloudhypervisor.CloudHypervisor).Manifest(req)
			if err != nil {
				t.Fatal(err)
			}
			layout := memory.LayoutRaw
			if req.Image != nil && req.Image.Lazy {
				layout = memory.LayoutStream
			}
			p, err := vmtest.Plan(req)
			if err != nil {
				t.Fatal(err)
			}
			if m.Layout != layout || m.VMM.Name != wire.Name || m.VMM.Version != req.Info.Version || m.Accelerator != req.Hypervisor || m.CPU.Model != "host" ||
				m.MemorySize != p.Memory.Size || len(m.Regions) != 1 || m.Regions[0].Size != m.MemorySize || !json.Valid(m.Specification) {
				t.Errorf("%+v", m)
			}
			if c.Name == "everything" && !slices.Equal(m.CPU.Features, []string{"amx", "kvm_hyperv"}) {
				t.Errorf("%q", m.CPU.Features)
			}
			if err := cloudhypervisor.CheckImage(req.Info, &m); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestManifestRefused(t *testing.T) {
	req := vmtest.Case{YAML: vmtest.Small}.Request(t)
	req.Spec.Memory.Size = "much"
	if m, err := new(cloudhypervisor.CloudHypervisor).Manifest(req); err == nil {
		t.Errorf("%+v", m)
	}
	req.Info.Details = 7
	if m, err := new(cloudhypervisor.CloudHypervisor).Manifest(req); err == nil {
		t.Errorf("%+v", m)
	}
}

func TestCheckImage(t *testing.T) {
	for _, c := range []struct {
		name, vmm, version, accelerator string
		want                            []string // nil: it can be restored
	}{
		{"the same", wire.Name, "53.0.0", "kvm", nil},
		{"another minor version", wire.Name, "53.9", "kvm", nil},
		{"built from a checkout", wire.Name, "53.0-12-g1a2b3c4d", "kvm", nil},
		{"older", wire.Name, "52.0.0", "kvm", []string{"by cloud-hypervisor 52.0.0", "/usr/bin/cloud-hypervisor is 53.0.0", "do not carry over between major versions", "install version 52"}},
		{"newer", wire.Name, "54.0.0", "kvm", []string{"do not carry over"}},
		{"no version", wire.Name, strings.Repeat("x", 1e6), "kvm", []string{"is not a version"}},
		{"QEMU's", "qemu", "10.0.2", "kvm", []string{`saved by "qemu"`, "only the VMM that saved it"}},
		{"nobody's", strings.Repeat("q", 1e6), "", "", []string{"saved by"}},
		{"another hypervisor", wire.Name, "53.0.0", "hyper", []string{`"hyper"`, "doesn't have"}},
		{"a broken hypervisor", wire.Name, "53.0.0", "mshv", []string{"mshv", "Permission denied"}},
		{"both", wire.Name, "51.0", "mshv", []string{"do not carry over", "Permission denied"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			info := vmtest.Info("amd64")
			info.Details.(*cloudhypervisor.Details).Accelerators = map[string]string{"kvm": "", "mshv": "Permission denied"}
			err := cloudhypervisor.CheckImage(info, &memory.Manifest{VMM: memory.VMM{Name: c.vmm, Version: c.version}, Accelerator: c.accelerator})
			if (err == nil) != (c.want == nil) || err != nil && (!errors.Is(err, cloudhypervisor.ErrImage) || len(err.Error()) > 1000) {
				t.Fatalf("%.2000v", err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v: want %q", err, want)
				}
			}
		})
	}
	if err := cloudhypervisor.CheckImage(vmm.Info{Details: "text"}, &memory.Manifest{VMM: memory.VMM{Name: wire.Name, Version: "53.0"}}); err == nil || errors.Is(err, cloudhypervisor.ErrImage) {
		t.Error(err)
	}
}

func TestUndrained(t *testing.T) {
	for version, refused := range map[string]bool{
		"53.0": false, "53.0.0": false, "53.0-12-g1a2b3c4d": false, "54.1.0": false, "100.0": false,
		"52.9.9": true, "52.0-300-g1a2b3c4d": true, "0.1": true, "": true, "next": true,
	} {
		if got := cloudhypervisor.Undrained(version); (got != "") != refused {
			t.Errorf("%q: %q, want refused: %t", version, got, refused)
		}
	}
}
