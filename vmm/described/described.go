// Package described is a VMM that vmlet doesn't know, by what its driver said of it on some node: what
// programs need that judge specifications away from nodes. It runs nothing and opens nothing; its driver plans
// VMs, on nodes. Start reading at VMM.
package described

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/plan"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"github.com/vmlet/vmlet/spec"
	"github.com/vmlet/vmlet/vmm"

	"google.golang.org/protobuf/encoding/protojson"
)

// VMM is one by its driver's words. If only its name is known, it has the least that a VMM can
// have.
type VMM struct {
	// ID is its name in specifications.
	ID      string `json:"name"`
	Version string `json:"version,omitempty"`
	// Programs are patterns of its programs' names.
	Programs []string `json:"programs,omitempty"`
	// Machines by the architecture of their guests (Go's name for it).
	Machines map[string]Machine `json:"machines,omitempty"`
	Costs    *vmm.MemoryCosts   `json:"memoryCosts,omitempty"`
}

// Machine is what the VMM's machines of one architecture have.
type Machine struct {
	Traits   vmm.Traits `json:"traits"`
	Defaults Defaults   `json:"defaults"`
}

// Defaults are spec.VMMDefaults; Layer is a specification as JSON, and Disk one of its disks.
type Defaults struct {
	Layer       json.RawMessage `json:"layer,omitempty"`
	Watchdog    string          `json:"watchdog,omitempty"`
	TPM         string          `json:"tpm,omitempty"`
	CDROMBus    string          `json:"cdromBus,omitempty"`
	Disk        json.RawMessage `json:"disk,omitempty"`
	UserNetwork bool            `json:"userNetwork,omitempty"`
}

var (
	_ vmm.Planner      = VMM{}
	_ vmm.Defaulter    = VMM{}
	_ vmm.Validator    = VMM{}
	_ vmm.MemoryCoster = VMM{}
	_ vmm.ProgramNamer = VMM{}
)

// errElsewhere says who plans.
var errElsewhere = errors.New("its driver plans VMs, on the nodes that have it")

// Of describes a VMM that answers here, for guests of an architecture.
func Of(v vmm.Planner, version, arch string) (VMM, error) {
	d := vmm.DefaultsOf(v, arch)
	machine := Machine{Traits: v.Traits(arch), Defaults: Defaults{Watchdog: d.Watchdog, TPM: d.TPM, CDROMBus: d.CDROMBus, UserNetwork: d.UserNetwork}}
	if d.Disk != nil {
		disk, err := protojson.Marshal(d.Disk)
		if err != nil {
			return VMM{}, fmt.Errorf("what %s's disks have: %w", v.Name(), err)
		}
		machine.Defaults.Disk = disk
	}
	if d.Layer != nil {
		layer, err := spec.MarshalJSON(d.Layer)
		if err != nil {
			return VMM{}, fmt.Errorf("%s's defaults: %w", v.Name(), err)
		}
		machine.Defaults.Layer = layer
	}
	costs := vmm.MemoryCostsOf(v)
	out := VMM{ID: v.Name(), Version: version, Machines: map[string]Machine{arch: machine}, Costs: &costs}
	if namer, is := v.(vmm.ProgramNamer); is {
		out.Programs = namer.ProgramNames()
	}
	return out, nil
}

// Name is that in specifications.
func (v VMM) Name() string { return v.ID }

// Traits are the least where nothing was said.
func (v VMM) Traits(arch string) vmm.Traits {
	if m, known := v.Machines[arch]; known {
		return m.Traits
	}
	return vmm.Traits{Disks: []string{spec.BusVirtio}}
}

// Defaults are the driver's, as far as this program knows their fields.
func (v VMM) Defaults(arch string) spec.VMMDefaults {
	d := v.Machines[arch].Defaults
	out := spec.VMMDefaults{Watchdog: d.Watchdog, TPM: d.TPM, CDROMBus: d.CDROMBus, UserNetwork: d.UserNetwork}
	known := protojson.UnmarshalOptions{DiscardUnknown: true}
	if layer := new(specv1.VirtualMachineSpec); len(d.Layer) > 0 && known.Unmarshal(d.Layer, layer) == nil {
		out.Layer = layer
	}
	if disk := new(specv1.Disk); len(d.Disk) > 0 && known.Unmarshal(d.Disk, disk) == nil {
		out.Disk = disk
	}
	return out
}

// Validate names the fields that ask for what the machines have not. What only the driver knows it says when
// it plans the VM. Of an unknown VMM nothing is refused.
func (v VMM) Validate(s *specv1.VirtualMachineSpec, arch string) (faults spec.FieldErrors) {
	if len(v.Machines) == 0 {
		return nil
	}
	if _, known := v.Machines[arch]; !known {
		faults.Add("vmm", "%s runs no guests of %s on any node", v.ID, arch)
		return faults
	}
	t := v.Traits(arch)
	if own := v.Defaults(arch).Layer.GetMachineType(); s.GetMachineType() != "" && s.GetMachineType() != own && !t.MachineTypes {
		faults.Add("machineType", "%s has one machine alone: leave it out", v.ID)
	}
	for i, d := range s.GetDisks() {
		if d.GetBus() != "" && !slices.Contains(t.Disks, d.GetBus()) {
			faults.Add(fmt.Sprintf("disks[%d].bus", i), "%s has disks on %s alone", v.ID, strings.Join(t.Disks, ", "))
		}
	}
	if s.GetDevices().GetVideo() != nil && !t.Video {
		faults.Add("devices.video", "%s has no graphics devices: leave it out", v.ID)
	}
	return faults
}

// MemoryCosts are a guess on the safe side where nothing was said.
func (v VMM) MemoryCosts() vmm.MemoryCosts {
	if v.Costs != nil {
		return *v.Costs
	}
	return vmm.MemoryCostsOf(silent{v})
}

// silent is a Planner without costs of its own.
type silent struct{ vmm.Planner }

// ProgramNames are the driver's; an unknown VMM's name stands for its program.
func (v VMM) ProgramNames() []string {
	if len(v.Programs) == 0 {
		return []string{v.ID}
	}
	return slices.Clone(v.Programs)
}

// Plan is its driver's to make.
func (VMM) Plan(vmm.PlanRequest) (*plan.Plan, error) { return nil, errElsewhere }

// Manifest is its driver's to make.
func (VMM) Manifest(vmm.PlanRequest) (memory.Manifest, error) {
	return memory.Manifest{}, errElsewhere
}
