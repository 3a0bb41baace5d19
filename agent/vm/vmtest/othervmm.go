package vmtest

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

// OtherVMM is a second VMM, which has no user networks and runs under kvm alone.
type OtherVMM struct {
	*VMM
	Missing error
}

// OtherName is the name of OtherVMM.
const OtherName = "cloud-hypervisor"

// NewOther makes the second VMM of a machine.
func NewOther(w *World) *OtherVMM { return &OtherVMM{VMM: &VMM{W: w}} }

func (v *OtherVMM) Name() string { return OtherName }
func (v *OtherVMM) Info(context.Context) (vmm.Info, error) {
	return vmm.Info{Name: OtherName, Version: "53", Binary: "/bin/ch", Capabilities: &capabilitiesv1.VmmCapabilities{
		Name: OtherName, Accelerators: []*capabilitiesv1.AcceleratorCapabilities{{Hypervisor: "kvm", Usable: true}},
	}}, v.Missing
}
func (v *OtherVMM) Defaults(string) spec.VMMDefaults { return spec.VMMDefaults{Watchdog: "virtio"} }
func (v *OtherVMM) Validate(s *specv1.VirtualMachineSpec, _ string) (faults spec.FieldErrors) {
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
func (v *OtherVMM) Plan(r vmm.PlanRequest) (*plan.Plan, error) {
	if err := v.Validate(r.Spec, "").Err(); err != nil {
		return nil, err
	}
	p, err := v.VMM.Plan(r)
	if err == nil {
		p.VMM = OtherName
	}
	return p, err
}
func (v *OtherVMM) Manifest(r vmm.PlanRequest) (memory.Manifest, error) {
	m, err := v.VMM.Manifest(r)
	m.VMM, m.MachineType = memory.VMM{Name: OtherName, Version: "53"}, ""
	return m, err
}

func (v *OtherVMM) Told(json.RawMessage, *semaphore.Weighted) (vmm.VMM, error) { return v, nil }
