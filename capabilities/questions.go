package capabilities

import (
	"fmt"
	"slices"
	"strings"

	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/proto/vmlet/capabilities/v1/fact"
)

// Answers are what a document says to single questions. A hypervisor or VMM
// that is not named is the node's default. Errors: *NotHereError and
// *NotAskedError. What is returned is the document's own, not to be changed.
type Answers struct {
	Document *capabilitiesv1.Capabilities
}

// NotHereError: the node has nothing of this name.
type NotHereError struct {
	// Kind is "hypervisor" or "VMM".
	Kind, Name string
	Known      []string
}

func (e *NotHereError) Error() string {
	if len(e.Known) == 0 {
		return fmt.Sprintf("this node has no %s", e.Kind)
	}
	return fmt.Sprintf("this node has no %s %q: there are %s", e.Kind, e.Name, strings.Join(e.Known, ", "))
}

// NotAskedError: it is there and could not be asked.
type NotAskedError struct {
	// Fact of the document.
	Fact   fact.Path
	Reason string
}

func (e *NotAskedError) Error() string { return string(e.Fact) + " is not known: " + e.Reason }

// HypervFeatures are the Hyper-V enlightenments that guests can have, sorted.
func (a Answers) HypervFeatures(hypervisor string) ([]string, error) {
	h, err := a.hypervisor(hypervisor)
	if err != nil {
		return nil, err
	}
	return h.GetHypervFeatures(), a.known(fact.Hypervisor(h.GetName()), fact.OfHypervisor(h.GetName(), fact.HypervFeatures))
}

// TSC is that of guests; zero where they have none, or of unknown frequency.
func (a Answers) TSC(hypervisor string) (*capabilitiesv1.TscInfo, error) {
	h, err := a.hypervisor(hypervisor)
	if err != nil {
		return nil, err
	}
	if h.GetTsc() == nil {
		return new(capabilitiesv1.TscInfo), a.known(fact.Hypervisor(h.GetName()), fact.OfHypervisor(h.GetName(), fact.TSC))
	}
	return h.GetTsc(), nil
}

// MachineTypes are all that a VMM has; those that vmlet can run say so.
func (a Answers) MachineTypes(vmm string) ([]*capabilitiesv1.MachineType, error) {
	v, err := a.vmm(vmm)
	return v.GetMachineTypes(), err
}

// CPUModels are the named models, those too that can't be used, but not those
// that the configuration calls obsolete.
func (a Answers) CPUModels(hypervisor, vmm string) ([]*capabilitiesv1.CpuModel, error) {
	acc, err := a.accelerator(hypervisor, vmm)
	if err != nil {
		return nil, err
	}
	obsolete := func(m *capabilitiesv1.CpuModel) bool {
		return slices.Contains(a.Document.GetObsoleteCpuModels(), m.GetName())
	}
	return slices.DeleteFunc(slices.Clone(acc.GetCpuModels()), obsolete), nil
}

// HostCPUModel is the named model nearest to what a guest can have here.
func (a Answers) HostCPUModel(hypervisor, vmm string) (*capabilitiesv1.HostCpuModel, error) {
	acc, err := a.accelerator(hypervisor, vmm)
	if err != nil {
		return nil, err
	}
	if acc.GetHostCpuModel() == nil {
		return nil, a.unknown(fact.OfAccelerator(a.vmmName(vmm), acc.GetHypervisor(), fact.HostCPUModel), "the VMM doesn't tell it")
	}
	return acc.GetHostCpuModel(), nil
}

// CPUFeatures are those that a guest can have, by libvirt's names, sorted.
func (a Answers) CPUFeatures(hypervisor, vmm string) ([]string, error) {
	acc, err := a.accelerator(hypervisor, vmm)
	return acc.GetCpuFeatures(), err
}

// Confidential is what the machine can do to hide a guest's memory.
func (a Answers) Confidential() (*capabilitiesv1.ConfidentialComputing, error) {
	c := a.Document.GetConfidentialComputing()
	if c == nil {
		return nil, a.unknown(fact.Confidential, "it was not asked")
	}
	return c, nil
}

func (a Answers) hypervisor(name string) (*capabilitiesv1.HypervisorCapabilities, error) {
	if name == "" || name == "auto" {
		name = a.Document.GetDefaultHypervisor()
	}
	var known []string
	for _, h := range a.Document.GetHypervisors() {
		if h.GetName() == name {
			return h, a.usable(fact.Hypervisor(name), h.GetState(), h.GetReason(), h.GetRemedy())
		}
		known = append(known, h.GetName())
	}
	if name == "" && len(known) > 0 {
		return nil, &NotAskedError{fact.DefaultHypervisor, a.Document.GetDefaultHypervisorReason()}
	}
	return nil, &NotHereError{"hypervisor", name, known}
}

func (a Answers) vmmName(name string) string {
	if name == "" || name == "auto" {
		return a.Document.GetDefaultVmm()
	}
	return name
}

func (a Answers) vmm(name string) (*capabilitiesv1.VmmCapabilities, error) {
	name = a.vmmName(name)
	var known []string
	for _, v := range a.Document.GetVmms() {
		if v.GetName() == name {
			return v, a.usable(fact.VMM(name), v.GetState(), v.GetReason(), v.GetRemedy())
		}
		known = append(known, v.GetName())
	}
	return nil, &NotHereError{"VMM", name, known}
}

// accelerator is a VMM under a hypervisor. Both must be usable.
func (a Answers) accelerator(hypervisor, vmm string) (*capabilitiesv1.AcceleratorCapabilities, error) {
	h, err := a.hypervisor(hypervisor)
	if err != nil {
		return nil, err
	}
	v, err := a.vmm(vmm)
	if err != nil {
		return nil, err
	}
	part := fact.Accelerator(v.GetName(), h.GetName())
	for _, acc := range v.GetAccelerators() {
		if acc.GetHypervisor() != h.GetName() {
			continue
		}
		if !acc.GetUsable() {
			return nil, a.unknown(part, acc.GetReason())
		}
		return acc, nil
	}
	return nil, a.unknown(part, v.GetName()+" was not tried under "+h.GetName())
}

// usable is nil for what works, if only so far.
func (a Answers) usable(part fact.Path, state capabilitiesv1.State, reason, remedy string) error {
	switch state {
	case capabilitiesv1.State_STATE_WORKS, capabilitiesv1.State_STATE_DEGRADED:
		return nil
	case capabilitiesv1.State_STATE_UNSPECIFIED:
		return a.unknown(part, "it was not asked")
	}
	if remedy != "" {
		reason += ": " + remedy
	}
	return &NotAskedError{part, reason}
}

// unknown is the error for a fact that is missing, with the document's reason
// where it has one.
func (a Answers) unknown(part fact.Path, otherwise string) error {
	for _, u := range a.Document.GetUnknown() {
		if u.GetFact() == string(part) {
			return &NotAskedError{part, u.GetReason()}
		}
	}
	return &NotAskedError{part, otherwise}
}

// known is nil unless the document says that a part, or all of what it is of, could
// not be asked.
func (a Answers) known(whole, part fact.Path) error {
	for _, u := range a.Document.GetUnknown() {
		if u.GetFact() == string(whole) || u.GetFact() == string(part) {
			return &NotAskedError{part, u.GetReason()}
		}
	}
	return nil
}
