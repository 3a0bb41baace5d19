package labels

import (
	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"maps"
	"slices"
	"strings"
	"testing"
)

// having makes a document of hypervisors and VMMs, "name" or "name=state", that
// says of facts that they could not be asked.
func having(hypervisors, defaultHypervisor, vmms, defaultVMM string, unknown ...string) *capabilitiesv1.Capabilities {
	doc := &capabilitiesv1.Capabilities{Architecture: "amd64", DefaultHypervisor: defaultHypervisor, DefaultVmm: defaultVMM}
	for word := range strings.FieldsSeq(hypervisors) {
		name, state, _ := strings.Cut(word, "=")
		doc.Hypervisors = append(doc.Hypervisors, &capabilitiesv1.HypervisorCapabilities{Name: name, State: stateOf(state)})
	}
	for word := range strings.FieldsSeq(vmms) {
		name, state, _ := strings.Cut(word, "=")
		doc.Vmms = append(doc.Vmms, &capabilitiesv1.VmmCapabilities{Name: name, State: stateOf(state), Version: "1", MachineTypes: []*capabilitiesv1.MachineType{{Name: "of-" + name}}})
	}
	for _, fact := range unknown {
		doc.Unknown = append(doc.Unknown, &capabilitiesv1.UnknownFact{Fact: fact, Reason: "it hung"})
	}
	return doc
}

// stateOf is the state of a word; of an empty one: not asked.
func stateOf(word string) capabilitiesv1.State {
	return capabilitiesv1.State(capabilitiesv1.State_value["STATE_"+strings.ToUpper(word)])
}

// TestChoice: another hypervisor or VMM might have been chosen only if it was not
// asked whether it works, and if it would have come first.
func TestChoice(t *testing.T) {
	const vmms = "old=unusable qemu=works new=unusable"
	for _, c := range []struct {
		name            string
		doc             *capabilitiesv1.Capabilities
		wanted          string
		hypervisor, vmm string // facts that leave it open
	}{
		{name: "all known", doc: having("kvm=works", "kvm", vmms, "qemu")},
		{name: "hypervisor without a state", doc: having("mshv kvm=works", "kvm", vmms, "qemu", "hypervisors.mshv"), hypervisor: "hypervisors.mshv"},
		{name: "its state", doc: having("mshv kvm=works", "kvm", vmms, "qemu", "hypervisors.mshv.state"), hypervisor: "hypervisors.mshv.state"},
		{name: "a detail of it", doc: having("mshv kvm=works", "kvm", vmms, "qemu", "hypervisors.mshv.tsc")},
		{name: "hypervisor that is not listed", doc: having("kvm=works", "kvm", vmms, "qemu", "hypervisors.mshv"), hypervisor: "hypervisors.mshv"},
		{name: "hypervisor with a state", doc: having("mshv=unusable kvm=works", "kvm", vmms, "qemu", "hypervisors.mshv")},
		{name: "the hypervisor that was chosen", doc: having("kvm", "kvm", vmms, "qemu", "hypervisors.kvm")},
		{name: "no hypervisor", doc: having("kvm=works", "kvm", vmms, "qemu", "hypervisors"), hypervisor: "hypervisors"},
		{name: "no hypervisor, and none was chosen", doc: having("", "", vmms, "qemu", "hypervisors"), hypervisor: "hypervisors"},
		{name: "the hypervisor is named", doc: having("mshv kvm=works", "kvm", vmms, "qemu", "hypervisors.mshv"), wanted: "kvm"},
		{name: "VMM before", doc: having("kvm=works", "kvm", vmms, "qemu", "vmms.old"), vmm: "vmms.old"},
		{name: "VMM before, a detail", doc: having("kvm=works", "kvm", vmms, "qemu", "vmms.old.version")},
		{name: "VMM before that works", doc: having("kvm=works", "kvm", "old=works qemu=works", "qemu", "vmms.old")},
		{name: "VMM after", doc: having("kvm=works", "kvm", vmms, "qemu", "vmms.new")},
		{name: "second VMM after", doc: having("kvm=works", "kvm", vmms+" newer=unusable", "qemu", "vmms.newer")},
		{name: "the VMM that was chosen", doc: having("kvm=works", "kvm", "qemu=unusable", "qemu", "vmms.qemu")},
		{name: "no VMM", doc: having("kvm=works", "kvm", vmms, "qemu", "vmms"), vmm: "vmms"},
		{name: "no VMM, and none was chosen", doc: having("kvm=works", "kvm", "", "", "vmms"), vmm: "vmms"},
		{name: "something else", doc: having("kvm=works", "kvm", vmms, "qemu", "host.old", "devices")},
	} {
		got := newChoice(c.doc, c.wanted)
		for what, pair := range map[string]struct {
			gap  *gap
			want string
		}{"hypervisor": {got.hypervisorGap, c.hypervisor}, "VMM": {got.vmmGap, c.vmm}} {
			if (pair.gap != nil) != (pair.want != "") || pair.gap != nil && (string(pair.gap.fact) != pair.want || !pair.gap.choice) {
				t.Errorf("%s: the %s is open by %+v, want %q", c.name, what, pair.gap, pair.want)
			}
		}
	}
}

// TestMergeAnotherVMM: labels of a VMM that was chosen since the first one could
// not be asked don't take the place of the first one's; others are as now.
func TestMergeAnotherVMM(t *testing.T) {
	previous := map[string]string{
		"machine-type.node.kubevirt.io/of-qemu": "true", "node.vmlet.io/vmm": "qemu",
		"node.vmlet.io/hypervisor": "emulation", "kubevirt.io/ksm-enabled": "true",
	}
	doc := having("kvm=works", "kvm", "qemu=unusable new=works", "new", "vmms.qemu")
	merged, kept := Merge(previous, of(t, doc, ""))
	want := maps.Clone(previous)
	want["node.vmlet.io/hypervisor"] = "kvm"
	want["hypervisor.node.vmlet.io/kvm"] = "works"
	want["vmm.node.vmlet.io/new"] = "1"
	want["node.vmlet.io/lazy-restore"] = "false" // there was none that could stay
	delete(want, "kubevirt.io/ksm-enabled")
	if !maps.Equal(merged, want) || len(kept) != 2 {
		t.Errorf("merged %v, want %v; kept %v", merged, want, kept)
	}
}

// TestMergeOrder: in which order facts are missed makes no difference.
func TestMergeOrder(t *testing.T) {
	whole := document(t, "intel")
	previous := of(t, whole, "").Labels
	doc := forget(whole, "vmms.qemu.accelerators.kvm", "host.ksm", "host.ksm", "vmms.qemu", "host")
	now := of(t, doc, "")
	merged, kept := Merge(previous, now)
	slices.Reverse(doc.Unknown)
	again := of(t, doc, "")
	if m, k := Merge(previous, again); !maps.Equal(m, merged) || !slices.Equal(k, kept) {
		t.Errorf("kept %v, then %v", kept, k)
	}
	if a, b := now.Unknown(), again.Unknown(); !slices.Equal(a, b) || len(a) != 4 {
		t.Errorf("unknown %q, then %q", a, b)
	}
}

// TestMergeNested: what KVM's modules would have said keeps no label of another hypervisor.
func TestMergeNested(t *testing.T) {
	const key = "node.vmlet.io/nested"
	for hypervisor, stays := range map[string]bool{"kvm": true, "mshv": false} {
		doc := having(hypervisor+"=works", hypervisor, "qemu=works", "qemu", "host.nested")
		merged, _ := Merge(map[string]string{key: "true"}, of(t, doc, ""))
		if _, stayed := merged[key]; stayed != stays {
			t.Errorf("%s: %s stayed: %v, want %v", hypervisor, key, stayed, stays)
		}
	}
}
