package capabilities

import (
	"fmt"
	"strings"
	"testing"

	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
)

// program is a VMM that was tried under hypervisors; those after a "-" it can't use.
func program(name string, tried ...string) *capabilitiesv1.VmmCapabilities {
	v := &capabilitiesv1.VmmCapabilities{Name: name, State: capabilitiesv1.State_STATE_WORKS}
	for _, h := range tried {
		under, refused := strings.CutPrefix(h, "-")
		a := &capabilitiesv1.AcceleratorCapabilities{Hypervisor: under, Usable: !refused}
		if refused {
			a.Reason = "it was built without"
		}
		v.Accelerators = append(v.Accelerators, a)
	}
	return v
}

// TestChooseDefault: what "auto" stands for follows from what was found, and
// nothing is tried again for it.
func TestChooseDefault(t *testing.T) {
	works, degraded, unusable := capabilitiesv1.State_STATE_WORKS, capabilitiesv1.State_STATE_DEGRADED, capabilitiesv1.State_STATE_UNUSABLE
	both := program("qemu", "kvm", "emulation")
	for _, c := range []struct {
		name           string
		kvm, emulation capabilitiesv1.State
		configured     string
		vmms           []*capabilitiesv1.VmmCapabilities
		foreign        bool
		want           string // hypervisor, VMM
		reason         string // a part of it
		warning        bool
	}{
		{name: "the first", kvm: works, emulation: works, vmms: []*capabilitiesv1.VmmCapabilities{both}, want: "kvm qemu", reason: "kvm works"},
		{name: "the first is slow", kvm: degraded, emulation: works, vmms: []*capabilitiesv1.VmmCapabilities{both}, want: "emulation qemu", reason: "kvm is degraded (found so)"},
		{name: "the first can't be used", kvm: unusable, emulation: works, vmms: []*capabilitiesv1.VmmCapabilities{both}, want: "emulation qemu", reason: "kvm is unusable (found so)"},
		{name: "none", kvm: unusable, emulation: unusable, vmms: []*capabilitiesv1.VmmCapabilities{both}, want: " qemu", reason: "none: "},
		{name: "slow, and configured", kvm: degraded, emulation: works, configured: "kvm", vmms: []*capabilitiesv1.VmmCapabilities{both}, want: "kvm qemu", reason: "kvm was asked for"},
		{name: "the second is configured", kvm: works, emulation: works, configured: "emulation", vmms: []*capabilitiesv1.VmmCapabilities{both}, want: "emulation qemu", reason: "emulation was asked for"},
		{name: "an unknown one is configured", kvm: works, emulation: works, configured: "xen", vmms: []*capabilitiesv1.VmmCapabilities{both}, want: "kvm qemu", reason: "kvm was asked for", warning: true},
		{name: "not with this VMM", kvm: works, emulation: works, vmms: []*capabilitiesv1.VmmCapabilities{program("qemu", "-kvm", "emulation")}, want: "emulation qemu", reason: "it was built without"},
		{name: "with the first VMM, not the second", kvm: works, emulation: works, vmms: []*capabilitiesv1.VmmCapabilities{both, program("other", "-kvm", "-emulation")}, want: "kvm qemu", reason: "kvm works"},
		{name: "faster with the second VMM", kvm: works, emulation: works, vmms: []*capabilitiesv1.VmmCapabilities{program("other", "-kvm", "emulation"), both}, want: "kvm qemu", reason: "kvm works"},
		{name: "as fast with the first VMM", kvm: degraded, emulation: works, vmms: []*capabilitiesv1.VmmCapabilities{program("other", "-kvm", "emulation"), both}, want: "emulation other", reason: "kvm is degraded"},
		{name: "the first VMM is not there", kvm: works, emulation: works, vmms: []*capabilitiesv1.VmmCapabilities{{Name: "other", State: capabilitiesv1.State_STATE_UNUSABLE, Reason: "gone"}, both}, want: "kvm qemu", reason: "kvm works"},
		{name: "only one that emulates nothing", kvm: unusable, emulation: works, vmms: []*capabilitiesv1.VmmCapabilities{{Name: "qemu", State: capabilitiesv1.State_STATE_UNUSABLE, Reason: "gone"}, program("other", "-kvm")}, want: "emulation qemu", reason: "kvm is unusable"},
		{name: "configured, and only with the second VMM", kvm: works, emulation: works, configured: "kvm", vmms: []*capabilitiesv1.VmmCapabilities{program("other", "-kvm", "emulation"), both}, want: "kvm qemu", reason: "kvm was asked for"},
		{name: "VMM that was not asked", kvm: works, emulation: works, vmms: []*capabilitiesv1.VmmCapabilities{program("qemu")}, want: "kvm qemu", reason: "kvm works"},
		{name: "no VMM", kvm: works, emulation: works, want: "kvm ", reason: "kvm works"},
		{name: "another machine's files", foreign: true, configured: "xen", vmms: []*capabilitiesv1.VmmCapabilities{both}, want: " qemu", reason: "another machine's", warning: true},
	} {
		m := newMachine(t)
		s := m.sources()
		s.DefaultHypervisor, s.ThisMachine = c.configured, !c.foreign
		doc := &capabilitiesv1.Capabilities{Vmms: c.vmms, Hypervisors: []*capabilitiesv1.HypervisorCapabilities{
			{Name: "kvm", State: c.kvm, Reason: "found so", Remedy: "do that"}, {Name: "emulation", State: c.emulation},
		}}
		chooseDefault(t.Context(), s, doc)
		if got := fmt.Sprintf("%s %s", doc.GetDefaultHypervisor(), doc.GetDefaultVmm()); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if !strings.Contains(doc.GetDefaultHypervisorReason(), c.reason) || (doc.GetDefaultHypervisorWarning() != "") != c.warning {
			t.Errorf("%s: %q, warning %q", c.name, doc.GetDefaultHypervisorReason(), doc.GetDefaultHypervisorWarning())
		}
		if tries, _ := m.kvm.counts(); tries != 0 {
			t.Errorf("%s: kvm was tried again", c.name)
		}
	}
}
