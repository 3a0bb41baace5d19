package labels

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vmlet/vmlet/hypervisor"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
)

// States in short.
const (
	unusable = capabilitiesv1.State_STATE_UNUSABLE
	works    = capabilitiesv1.State_STATE_WORKS
	unasked  = capabilitiesv1.State_STATE_UNSPECIFIED
)

// view is the document as seen by one hypervisor and the default VMM. Parts
// that the document doesn't have are nil, which protobuf's getters stand.
type view struct {
	doc    *capabilitiesv1.Capabilities
	choice choice
	// hypervisor is nil if guests can't run under it.
	hypervisor *capabilitiesv1.HypervisorCapabilities
	vmm        *capabilitiesv1.VmmCapabilities
	// accelerator is the VMM under the hypervisor; nil: it can't be used.
	accelerator *capabilitiesv1.AcceleratorCapabilities
	traits      traits
}

// traits of an architecture: which labels KubeVirt writes on it.
type traits struct {
	// cpu: features, models and the host model.
	cpu bool
	// x86: the Hyper-V enlightenments and the TSC.
	x86 bool
	// vendor of all its CPUs; empty: there are several.
	vendor string
}

func traitsOf(architecture string) traits {
	switch architecture {
	case "amd64":
		return traits{cpu: true, x86: true}
	case "s390x":
		return traits{cpu: true, vendor: "IBM"}
	}
	return traits{}
}

func newView(doc *capabilitiesv1.Capabilities, wanted string) (*view, error) {
	c := newChoice(doc, wanted)
	v := &view{doc: doc, choice: c, traits: traitsOf(doc.GetArchitecture())}
	h := hypervisorNamed(doc, c.hypervisor)
	if h == nil && wanted != "" {
		return nil, fmt.Errorf("hypervisor %q: this node has %s", wanted, knownHypervisors(doc))
	}
	if h.GetState() != unusable {
		v.hypervisor = h
	}
	v.vmm = vmmNamed(doc, c.vmm)
	for _, a := range v.vmm.GetAccelerators() {
		if a.GetHypervisor() == c.hypervisor && a.GetUsable() && v.hypervisor != nil {
			v.accelerator = a
			break
		}
	}
	return v, nil
}

// notes say why a whole group of labels is missing.
func (v *view) notes() []string {
	name := v.choice.hypervisor
	switch {
	case name == "":
		return []string{"there are no labels of what guests can have: hypervisor " + cmp.Or(v.doc.GetDefaultHypervisorReason(), "not known")}
	case v.hypervisor == nil:
		why := hypervisorNamed(v.doc, name).GetReason()
		return []string{fmt.Sprintf("%s can't be used, so there are no labels of what its guests can have: %s", name, cmp.Or(why, "nothing is known of it"))}
	case v.accelerator == nil:
		why := v.vmm.GetReason()
		for _, a := range v.vmm.GetAccelerators() {
			if a.GetHypervisor() == name {
				why = a.GetReason()
			}
		}
		return []string{fmt.Sprintf("%s can't be used under %s, so there are no labels of CPUs: %s",
			cmp.Or(v.choice.vmm, "a VMM"), name, cmp.Or(why, "nothing is known of it"))}
	}
	return nil
}

// hardware: guests run on the machine's own CPUs, not on a program's.
func (v *view) hardware() bool {
	return v.hypervisor != nil && v.hypervisor.GetName() != hypervisor.NameEmulation
}

// hostModel is nil where it isn't known.
func (v *view) hostModel() *capabilitiesv1.HostCpuModel {
	if m := v.accelerator.GetHostCpuModel(); v.traits.cpu && m.GetName() != "" {
		return m
	}
	return nil
}

// obsolete: a model isn't offered.
func (v *view) obsolete(model string) bool {
	return slices.Contains(v.doc.GetObsoleteCpuModels(), model)
}

func hypervisorNamed(doc *capabilitiesv1.Capabilities, name string) *capabilitiesv1.HypervisorCapabilities {
	for _, h := range doc.GetHypervisors() {
		if h.GetName() == name && name != "" {
			return h
		}
	}
	return nil
}

func vmmNamed(doc *capabilitiesv1.Capabilities, name string) *capabilitiesv1.VmmCapabilities {
	for _, m := range doc.GetVmms() {
		if m.GetName() == name && name != "" {
			return m
		}
	}
	return nil
}

func knownHypervisors(doc *capabilitiesv1.Capabilities) string {
	var names []string
	for _, h := range doc.GetHypervisors() {
		names = append(names, h.GetName())
	}
	if len(names) == 0 {
		return "none"
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
