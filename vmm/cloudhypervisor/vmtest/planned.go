package vmtest

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/chapi"
	"github.com/vmlet/vmlet/vmm/cloudhypervisor/wire"
)

// Planned is a plan, and its instructions as they are read again.
type Planned struct {
	*plan.Plan
	VM wire.VM
}

// Plan plans a VM.
func Plan(r vmm.PlanRequest) (*Planned, error) {
	p, err := cloudhypervisor.CloudHypervisor{}.Plan(r)
	if err != nil {
		return nil, err
	}
	out := &Planned{Plan: p}
	return out, json.Unmarshal(p.Instructions, &out.VM)
}

// Render is a plan as golden files have it.
func Render(t *testing.T, p *Planned) string {
	t.Helper()
	text, err := json.MarshalIndent(p.Plan, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text) + "\n"
}

// Compare holds a text against a golden file; update writes it instead.
func Compare(t *testing.T, update bool, path, got string) {
	t.Helper()
	if update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: make it with -update and read it", err)
	}
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range max(len(gotLines), len(wantLines)) {
		if i >= len(gotLines) || i >= len(wantLines) || gotLines[i] != wantLines[i] {
			t.Fatalf("%s:%d:\n got %q\nwant %q", path, i+1, gotLines[min(i, len(gotLines)-1)], wantLines[min(i, len(wantLines)-1)])
		}
	}
}

// DevicesOf are a VM's devices that have a place.
func DevicesOf(p *Planned) []chapi.PCI {
	out := []chapi.PCI{p.VM.Config.RNG.PCI}
	if p.VM.Config.Balloon != nil {
		out = append(out, p.VM.Config.Balloon.PCI)
	}
	if p.VM.Config.Vsock != nil {
		out = append(out, p.VM.Config.Vsock.PCI)
	}
	for _, d := range p.VM.Config.Disks {
		out = append(out, d.PCI)
	}
	for _, add := range p.VM.Add {
		out = append(out, add.Net.PCI)
	}
	for _, host := range p.VM.Devices {
		out = append(out, host.PCI)
	}
	return out
}
