package readiness

import (
	"fmt"
	"slices"
	"strings"

	vmletv1 "github.com/vmlet/vmlet/proto/vmlet/v1"
)

// Ready says whether some VMM runs guests under some hypervisor. A VMM that was
// not asked, since it is another machine's, doesn't count against it.
func Ready(doc *vmletv1.Capabilities) bool { return len(pairs(doc)) > 0 }

// pairs are the hypervisors under which guests run, and whether they run well.
func pairs(doc *vmletv1.Capabilities) []*vmletv1.HypervisorCapabilities {
	var found []*vmletv1.HypervisorCapabilities
	for _, h := range doc.GetHypervisors() {
		if (h.GetState() == works || h.GetState() == degraded) && slices.ContainsFunc(doc.GetVmms(), runsUnder(h.GetName())) {
			found = append(found, h)
		}
	}
	return found
}

func runsUnder(hypervisor string) func(*vmletv1.VmmCapabilities) bool {
	return func(v *vmletv1.VmmCapabilities) bool {
		if v.GetState() != works || len(v.GetAccelerators()) == 0 {
			return v.GetState() == works || v.GetState() == ""
		}
		return slices.ContainsFunc(v.GetAccelerators(), func(a *vmletv1.AcceleratorCapabilities) bool {
			return a.GetHypervisor() == hypervisor && a.GetUsable()
		})
	}
}

// verdict says in a sentence whether VMs can run.
func verdict(doc *vmletv1.Capabilities) (string, bool) {
	found := pairs(doc)
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
	if !slices.ContainsFunc(doc.GetVmms(), func(v *vmletv1.VmmCapabilities) bool { return v.GetState() == works }) {
		text += "; whether there is a VMM is not known"
	}
	return text, true
}

// obstacle is the first thing to be put right.
func obstacle(doc *vmletv1.Capabilities) string {
	for _, v := range doc.GetVmms() {
		if v.GetState() == unusable {
			return "VMM " + v.GetName() + ": " + sentence(v.GetReason(), v.GetRemedy())
		}
	}
	for _, h := range doc.GetHypervisors() {
		if h.GetState() == unusable {
			return "hypervisor " + h.GetName() + ": " + sentence(h.GetReason(), h.GetRemedy())
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
