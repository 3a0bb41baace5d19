package cloudhypervisor

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/memory"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/test/chtest"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chvm"
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
			if err := CheckImage(req.Info, &m); err != nil {
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
			err := CheckImage(info, &memory.Manifest{VMM: memory.VMM{Name: c.vmm, Version: c.version}, Accelerator: c.accelerator})
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
	if err := CheckImage(vmm.Info{Details: "text"}, &memory.Manifest{VMM: memory.VMM{Name: chvm.Name, Version: "53.0"}}); err == nil || errors.Is(err, ErrImage) {
		t.Error(err)
	}
	if err := New(Config{Binary: "/nonesuch"}).CheckImage(context.Background(), &memory.Manifest{}); err == nil {
		t.Error("without a program")
	}
}

func TestUndrained(t *testing.T) {
	for version, refused := range map[string]bool{
		"53.0": false, "53.0.0": false, "53.0-12-g1a2b3c4d": false, "54.1.0": false, "100.0": false,
		"52.9.9": true, "52.0-300-g1a2b3c4d": true, "0.1": true, "": true, "next": true,
	} {
		if got := Undrained(version); (got != "") != refused {
			t.Errorf("%q: %q, want refused: %t", version, got, refused)
		}
	}
}

// A version whose pause doesn't wait for its disks runs VMs, and says that it saves none.
func TestOlderVersionSavesNothing(t *testing.T) {
	program, err := chtest.Build(standInContext(t), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := (chtest.Knobs{Version: "52.0.0"}).Write(program); err != nil {
		t.Fatal(err)
	}
	p := New(Config{Binary: program, Architecture: "amd64", Hypervisors: nodeWith(t, "kvm")})
	info, err := p.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const want = "install version 53"
	if got := reasonsOf(info)["kvm"]; got != "usable" {
		t.Errorf("kvm is %q, want usable", got)
	}
	if got := info.Capabilities.GetReason(); !strings.Contains(got, want) {
		t.Errorf("reason %q doesn't have %q", got, want)
	}
	if got := info.Capabilities.GetSnapshotKinds(); len(got) > 0 {
		t.Errorf("snapshot kinds %q, want none", got)
	}
	said, err := p.Tell(info)
	if err != nil {
		t.Fatal(err)
	}
	told, err := New(Config{}).Told(said, nil)
	if err != nil {
		t.Fatal(err)
	}
	for who, v := range map[string]vmm.VMM{"asked": p, "told": told} {
		if err := vmm.RefuseSave(v, &specv1.VirtualMachineSpec{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: saving is refused with %v, want %q", who, err, want)
		}
	}
}
