package agent

import (
	"context"
	"encoding/json"
	"fmt"

	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"

	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"
	"golang.org/x/sync/semaphore"
)

// otherVMM is a second VMM, which has no user networks and runs under kvm alone.
type otherVMM struct {
	*fakeVMM
	missing error
}

const otherName = "cloud-hypervisor"

func newOther(w *World) *otherVMM { return &otherVMM{fakeVMM: &fakeVMM{w: w}} }

func (v *otherVMM) Name() string { return otherName }
func (v *otherVMM) Info(context.Context) (vmm.Info, error) {
	return vmm.Info{Name: otherName, Version: "53", Binary: "/bin/ch", Capabilities: &capabilitiesv1.VmmCapabilities{
		Name: otherName, Accelerators: []*capabilitiesv1.AcceleratorCapabilities{{Hypervisor: "kvm", Usable: true}},
	}}, v.missing
}
func (v *otherVMM) Defaults(string) spec.VMMDefaults { return spec.VMMDefaults{Watchdog: "virtio"} }
func (v *otherVMM) Validate(s *specv1.VirtualMachineSpec, _ string) (faults spec.FieldErrors) {
	for i, n := range s.GetNetworks() {
		if n.GetTap() == nil {
			faults = append(faults, spec.FieldError{Field: fmt.Sprintf("networks[%d].user", i), Message: "want a tap", UseVMM: "qemu"})
		}
	}
	if m := s.GetDevices().GetWatchdog().GetModel(); m != "" && m != "virtio" {
		faults.Add("devices.watchdog.model", "want virtio")
	}
	return faults
}
func (v *otherVMM) Plan(r vmm.PlanRequest) (*plan.Plan, error) {
	if err := v.Validate(r.Spec, "").Err(); err != nil {
		return nil, err
	}
	p, err := v.fakeVMM.Plan(r)
	if err == nil {
		p.VMM = otherName
	}
	return p, err
}
func (v *otherVMM) Manifest(r vmm.PlanRequest) (memory.Manifest, error) {
	m, err := v.fakeVMM.Manifest(r)
	m.VMM, m.MachineType = memory.VMM{Name: otherName, Version: "53"}, ""
	return m, err
}

func (v *otherVMM) Told(json.RawMessage, *semaphore.Weighted) (vmm.VMM, error) { return v, nil }
