package readiness

import (
	"fmt"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/vmm"
	"slices"
	"strings"
)

// Ready says whether some VMM runs guests under some hypervisor. What could not
// be asked, since it is another machine's, doesn't count against it.
func Ready(doc *capabilitiesv1.Capabilities) bool { return len(pairs(doc)) > 0 || unasked(doc) }

// unasked: neither hypervisors nor VMMs have been asked.
func unasked(doc *capabilitiesv1.Capabilities) bool {
	return len(doc.GetHypervisors()) > 0 &&
		!slices.ContainsFunc(doc.GetHypervisors(), func(h *capabilitiesv1.HypervisorCapabilities) bool { return h.GetState() != notKnown })
}

// pairs are the hypervisors under which some VMM runs guests.
func pairs(doc *capabilitiesv1.Capabilities) []*capabilitiesv1.HypervisorCapabilities {
	var found []*capabilitiesv1.HypervisorCapabilities
	for _, h := range doc.GetHypervisors() {
		if usable(h) && slices.ContainsFunc(doc.GetVmms(), runsUnder(h.GetName())) {
			found = append(found, h)
		}
	}
	return found
}

func usable(h *capabilitiesv1.HypervisorCapabilities) bool {
	return h.GetState() == works || h.GetState() == degraded
}

func runsUnder(hypervisor string) func(*capabilitiesv1.VmmCapabilities) bool {
	return func(v *capabilitiesv1.VmmCapabilities) bool {
		return v.GetState() == works && vmm.RunsUnder(v, hypervisor) == nil
	}
}

// verdict says in a sentence whether VMs can run.
func verdict(doc *capabilitiesv1.Capabilities) (string, bool) {
	found := pairs(doc)
	if unasked(doc) {
		return "VERDICT: whether VMs can run there is not known: the files are another machine's", true
	}
	if len(found) == 0 {
		return "VERDICT: no VM can run here: " + obstacle(doc), false
	}
	var names []string
	hardware := false
	for _, h := range found {
		name := h.GetName()
		if h.GetState() == degraded {
			name += " (degraded)"
		} else if h.GetDevice() != "" {
			hardware = true
		}
		names = append(names, name)
	}
	text := fmt.Sprintf("VERDICT: VMs can run here, under %s", strings.Join(names, ", "))
	if !hardware {
		text += "; none of it is the processor's own virtualisation, so they run slowly"
	}
	if !slices.ContainsFunc(found, func(h *capabilitiesv1.HypervisorCapabilities) bool { return h.GetName() == doc.GetDefaultHypervisor() }) {
		text += "; but none that names no hypervisor: see \"default\" above"
	}
	return text, true
}

// obstacle is the first thing to be put right.
func obstacle(doc *capabilitiesv1.Capabilities) string {
	if !slices.ContainsFunc(doc.GetHypervisors(), usable) {
		for _, h := range doc.GetHypervisors() {
			return "hypervisor " + h.GetName() + ": " + sentence(h.GetReason(), h.GetRemedy())
		}
	}
	for _, v := range doc.GetVmms() {
		if v.GetState() == unusable {
			return "VMM " + v.GetName() + ": " + sentence(v.GetReason(), v.GetRemedy())
		}
	}
	if len(doc.GetVmms()) == 0 {
		return "there is no VMM"
	}
	return "the VMM runs guests under none of the hypervisors"
}

func sentence(reason, remedy string) string {
	if remedy == "" {
		return reason
	}
	return reason + ": " + remedy
}
