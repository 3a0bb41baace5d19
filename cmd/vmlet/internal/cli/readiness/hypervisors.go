package readiness

import (
	"fmt"
	"slices"

	"github.com/dustin/go-humanize"
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"github.com/vmlet/vmlet/proto/vmlet/capabilities/v1/fact"
	"github.com/vmlet/vmlet/vmm"
)

// States in short.
const (
	works    = capabilitiesv1.State_STATE_WORKS
	degraded = capabilitiesv1.State_STATE_DEGRADED
	unusable = capabilitiesv1.State_STATE_UNUSABLE
	absent   = capabilitiesv1.State_STATE_ABSENT
	notKnown = capabilitiesv1.State_STATE_UNSPECIFIED
)

func hypervisors(doc *capabilitiesv1.Capabilities) []Check {
	var all []Check
	for _, h := range doc.GetHypervisors() {
		c := Check{Name: h.GetName(), Finding: h.GetState().Word(), Details: h.GetLimitations(), Remedy: h.GetRemedy()}
		switch h.GetState() {
		case works:
			c.Mark = Pass
		case degraded:
			c.Mark = Warn
		case notKnown:
			c.Mark, c.Finding = Warn, notAsked(doc, fact.Hypervisor(h.GetName()))
		default:
			c.Mark = missing(doc, h)
		}
		if h.GetReason() != "" {
			c.Finding += ": " + h.GetReason()
		}
		if h.GetState() == works || h.GetState() == degraded {
			c.Details = append(slices.Clone(c.Details), abilities(h)...)
		}
		if h.GetName() == doc.GetDefaultHypervisor() {
			c.Details = append(c.Details, "VMs that name none get it")
		}
		all = append(all, c)
	}
	return append(all, defaultChoice(doc)...)
}

// defaultChoice is what is amiss with the hypervisor of VMs that name none.
func defaultChoice(doc *capabilitiesv1.Capabilities) []Check {
	if unasked(doc) || len(doc.GetHypervisors()) == 0 {
		return nil
	}
	var all []Check
	if w := doc.GetDefaultHypervisorWarning(); w != "" {
		all = append(all, Check{Mark: Warn, Name: "default", Finding: w})
	}
	bad := Warn
	if !Ready(doc) {
		bad = Fail
	}
	name := doc.GetDefaultHypervisor()
	if name == "" {
		return append(all, Check{Mark: bad, Name: "default", Finding: doc.GetDefaultHypervisorReason()})
	}
	for _, v := range doc.GetVmms() {
		if v.GetName() != doc.GetDefaultVmm() || v.GetState() != works {
			continue
		}
		if err := vmm.RunsUnder(v, name); err != nil {
			all = append(all, Check{Mark: bad, Name: "default", Finding: fmt.Sprintf("VMs that name no hypervisor get %s and can't run: %v", name, err),
				Remedy: "set hypervisor: in the agent's configuration to one under which it runs guests"})
		}
	}
	return all
}

// missing marks a hypervisor that can't be used by what else there is: nobody
// has the devices of two, and emulation alone is slow.
func missing(doc *capabilitiesv1.Capabilities, h *capabilitiesv1.HypervisorCapabilities) Mark {
	if !slices.ContainsFunc(doc.GetHypervisors(), usable) {
		return Fail
	}
	thereIsNoDevice := h.GetErrno() == "ENOENT" || h.GetErrno() == "ENODEV" || h.GetErrno() == "ENXIO"
	another := slices.ContainsFunc(doc.GetHypervisors(), func(o *capabilitiesv1.HypervisorCapabilities) bool {
		return o.GetDevice() != "" && usable(o)
	})
	if thereIsNoDevice && (another || h.GetName() != first(doc)) {
		return Info
	}
	return Warn
}

// first is the preferred hypervisor.
func first(doc *capabilitiesv1.Capabilities) string {
	if all := doc.GetHypervisors(); len(all) > 0 {
		return all[0].GetName()
	}
	return ""
}

func abilities(h *capabilitiesv1.HypervisorCapabilities) []string {
	var all []string
	if n := h.GetInstructionsPerSecond(); n > 0 && h.GetState() == degraded {
		all = append(all, "a trial guest ran "+humanize.SIWithDigits(float64(n), 1, "")+" instructions a second")
	}
	if l := h.GetLimits(); l.GetMaxVcpus() > 0 {
		all = append(all, fmt.Sprintf("up to %d vCPUs a guest (%d recommended), %d memory slots", l.GetMaxVcpus(), l.GetRecommendedVcpus(), l.GetMaxMemorySlots()))
	}
	if f := h.GetHypervFeatures(); len(f) > 0 {
		all = append(all, "Hyper-V features for Windows guests: "+some(f, 12))
	}
	if t := h.GetTsc(); t.GetFrequencyHz() > 0 {
		all = append(all, fmt.Sprintf("guests' TSC: %.1f MHz, scalable: %s", float64(t.GetFrequencyHz())/1e6, yesNo(t.GetScalable())))
	}
	if h.Nested != nil {
		all = append(all, "guests may have guests (nested): "+yesNo(h.GetNested()))
	}
	return all
}

func vmms(doc *capabilitiesv1.Capabilities) []Check {
	var all []Check
	for _, v := range doc.GetVmms() {
		all = append(all, program(doc, v))
		for _, a := range v.GetAccelerators() {
			if refused(doc, a) {
				continue // the report already says that the hypervisor can't be used
			}
			if c, ok := accelerator(v, a); ok {
				all = append(all, c)
			}
		}
	}
	if len(all) == 0 {
		all = append(all, Check{Mark: Fail, Name: "none", Finding: "no VMM is configured"})
	}
	return all
}

// refused: the VMM can't be used under a hypervisor that can't be used at all.
func refused(doc *capabilitiesv1.Capabilities, a *capabilitiesv1.AcceleratorCapabilities) bool {
	return !a.GetUsable() && slices.ContainsFunc(doc.GetHypervisors(), func(h *capabilitiesv1.HypervisorCapabilities) bool {
		return h.GetName() == a.GetHypervisor() && h.GetState() == unusable
	})
}

func program(doc *capabilitiesv1.Capabilities, v *capabilitiesv1.VmmCapabilities) Check {
	c := Check{Name: v.GetName(), Remedy: v.GetRemedy()}
	switch v.GetState() {
	case works:
		c.Mark, c.Finding = Pass, fmt.Sprintf("%s, %s", v.GetVersion(), v.GetBinary())
		if v.GetPackage() != "" {
			c.Finding += " (" + v.GetPackage() + ")"
		}
		c.Details = vmmAbilities(v)
	case notKnown:
		c.Mark, c.Finding = Warn, notAsked(doc, fact.VMM(v.GetName()))
	default:
		c.Mark, c.Finding = Warn, v.GetState().Word()+": "+v.GetReason()
		switch {
		case v.GetName() != doc.GetDefaultVmm():
			c.Mark = Info // nobody has to have it
		case !Ready(doc):
			c.Mark = Fail
		}
	}
	return c
}

func vmmAbilities(v *capabilitiesv1.VmmCapabilities) []string {
	var all []string
	var supported, deprecated []string
	for _, m := range v.GetMachineTypes() {
		if m.GetSupported() {
			supported = append(supported, m.GetName())
		}
		if m.GetSupported() && m.GetDeprecated() {
			deprecated = append(deprecated, m.GetName())
		}
	}
	if len(supported) > 0 {
		line := fmt.Sprintf("machine types: %d, vmlet runs %d of them", len(v.GetMachineTypes()), len(supported))
		if len(deprecated) > 0 {
			line += fmt.Sprintf(" (%d deprecated)", len(deprecated))
		}
		all = append(all, line)
	}
	switch kinds := v.GetSnapshotKinds(); {
	case len(kinds) > 0:
		all = append(all, "saves and restores memory: "+some(kinds, 5))
	case v.GetReason() != "":
		return append(all, v.GetReason())
	}
	if !v.GetLazyRestore() {
		all = append(all, "no lazy restore (restoring without reading all memory first): a newer version may have it")
	}
	return all
}

func accelerator(v *capabilitiesv1.VmmCapabilities, a *capabilitiesv1.AcceleratorCapabilities) (Check, bool) {
	c := Check{Name: v.GetName() + "/" + a.GetHypervisor()}
	if !a.GetUsable() {
		c.Mark, c.Finding = Warn, a.GetReason()
		if !slices.Contains(v.GetBuiltAccelerators(), a.GetAccelerator()) {
			c.Mark = Info
		}
		return c, true
	}
	usable := 0
	for _, m := range a.GetCpuModels() {
		if m.GetUsable() {
			usable++
		}
	}
	if len(a.GetCpuModels()) == 0 {
		return c, false
	}
	c.Mark, c.Finding = Pass, fmt.Sprintf("%d of %d CPU models, %d CPU features", usable, len(a.GetCpuModels()), len(a.GetCpuFeatures()))
	if m := a.GetHostCpuModel(); m != nil {
		c.Details = append(c.Details, fmt.Sprintf("the host's model for guests: %s, with %s added and %d taken away",
			m.GetName(), plural(len(m.GetRequiredFeatures()), "feature"), len(m.GetDisabledFeatures())))
	}
	return c, true
}
