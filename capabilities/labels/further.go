package labels

import (
	"iter"

	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
)

// further are the hypervisors that guests can run under beside the one that the other labels are of.
func (v *view) further() iter.Seq[*capabilitiesv1.HypervisorCapabilities] {
	return func(yield func(*capabilitiesv1.HypervisorCapabilities) bool) {
		for _, h := range v.doc.GetHypervisors() {
			usable := h.GetState() != unusable && h.GetState() != unasked
			if usable && h.GetName() != v.choice.hypervisor && !yield(h) {
				return
			}
		}
	}
}

// under are the VMM's answers under the further hypervisors, by their names.
func (v *view) under() iter.Seq2[string, *capabilitiesv1.AcceleratorCapabilities] {
	return func(yield func(string, *capabilitiesv1.AcceleratorCapabilities) bool) {
		for h := range v.further() {
			for _, a := range v.vmm.GetAccelerators() {
				if a.GetHypervisor() == h.GetName() && a.GetUsable() && !yield(h.GetName(), a) {
					return
				}
			}
		}
	}
}

func furtherFeatures(v *view, add adder) {
	for name, a := range v.under() {
		for _, f := range a.GetCpuFeatures() {
			if v.traits.cpu {
				add(name+"."+f, yes)
			}
		}
	}
}

func furtherModels(v *view, add adder) {
	for name, a := range v.under() {
		for _, m := range a.GetCpuModels() {
			if v.traits.cpu && m.GetUsable() && !v.obsolete(m.GetName()) {
				add(name+"."+m.GetName(), yes)
			}
		}
	}
}

func furtherHyperV(v *view, add adder) {
	for h := range v.further() {
		for _, f := range h.GetHypervFeatures() {
			if v.traits.x86 {
				add(h.GetName()+"."+f, yes)
			}
		}
	}
}
