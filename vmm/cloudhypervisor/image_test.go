package cloudhypervisor

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chvm"
	"github.com/vmlet/vmlet/vmm/memory"
)

// TestManifests: an image of each VM can be restored by the program that made it.
func TestManifests(t *testing.T) {
	for _, c := range planCases() {
		t.Run(c.name, func(t *testing.T) {
			req := c.request(t)
			m, err := New(Config{}).Manifest(req)
			if err != nil {
				t.Fatal(err)
			}
			layout := memory.LayoutRaw
			if req.Image != nil && req.Image.Lazy {
				layout = memory.LayoutStream
			}
			p, err := planVM(req)
			if err != nil {
				t.Fatal(err)
			}
			if m.Layout != layout || m.VMM.Name != chvm.Name || m.VMM.Version != req.Info.Version || m.Accelerator != req.Hypervisor || m.CPU.Model != "host" ||
				m.MemorySize != p.Memory.Size || len(m.Regions) != 1 || m.Regions[0].Size != m.MemorySize || !json.Valid(m.Specification) {
				t.Errorf("%+v", m)
			}
			if c.name == "everything" && !slices.Equal(m.CPU.Features, []string{"amx", "kvm_hyperv"}) {
				t.Errorf("%q", m.CPU.Features)
			}
			if err := checkImage(req.Info, &m); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestManifestRefused(t *testing.T) {
	req := planCase{yaml: small}.request(t)
	req.Spec.Memory.Size = "much"
	if m, err := New(Config{}).Manifest(req); err == nil {
		t.Errorf("%+v", m)
	}
	req.Info.Details = 7
	if m, err := New(Config{}).Manifest(req); err == nil {
		t.Errorf("%+v", m)
	}
}

func TestCheckImage(t *testing.T) {
	for _, c := range []struct {
		name, vmm, version, accelerator string
		want                            []string // nil: it can be restored
	}{
		{"the same", chvm.Name, "53.0.0", "kvm", nil},
		{"another minor version", chvm.Name, "53.9", "kvm", nil},
		{"built from a checkout", chvm.Name, "53.0-12-g1a2b3c4d", "kvm", nil},
		{"older", chvm.Name, "52.0.0", "kvm", []string{"by cloud-hypervisor 52.0.0", "/usr/bin/cloud-hypervisor is 53.0.0", "do not carry over between major versions", "install version 52"}},
		{"newer", chvm.Name, "54.0.0", "kvm", []string{"do not carry over"}},
		{"no version", chvm.Name, strings.Repeat("x", 1e6), "kvm", []string{"is not a version"}},
		{"QEMU's", "qemu", "10.0.2", "kvm", []string{`saved by "qemu"`, "only the VMM that saved it"}},
		{"nobody's", strings.Repeat("q", 1e6), "", "", []string{"saved by"}},
		{"another hypervisor", chvm.Name, "53.0.0", "hyper", []string{`"hyper"`, "doesn't have"}},
		{"a broken hypervisor", chvm.Name, "53.0.0", "mshv", []string{"mshv", "Permission denied"}},
		{"both", chvm.Name, "51.0", "mshv", []string{"do not carry over", "Permission denied"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			info := testInfo("amd64")
			info.Details.(*Details).Accelerators = map[string]string{"kvm": "", "mshv": "Permission denied"}
			err := checkImage(info, &memory.Manifest{VMM: memory.VMM{Name: c.vmm, Version: c.version}, Accelerator: c.accelerator})
			if (err == nil) != (c.want == nil) || err != nil && (!errors.Is(err, ErrImage) || len(err.Error()) > 1000) {
				t.Fatalf("%.2000v", err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v: want %q", err, want)
				}
			}
		})
	}
	if err := checkImage(vmm.Info{Details: "text"}, &memory.Manifest{VMM: memory.VMM{Name: chvm.Name, Version: "53.0"}}); err == nil || errors.Is(err, ErrImage) {
		t.Error(err)
	}
	if err := New(Config{Binary: "/nonesuch"}).CheckImage(context.Background(), &memory.Manifest{}); err == nil {
		t.Error("without a program")
	}
}
