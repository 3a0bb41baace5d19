package labels

import (
	"maps"
	"slices"
	"strings"
	"testing"

	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"google.golang.org/protobuf/proto"
)

// forget takes facts out of a document, as if they could not be asked.
func forget(doc *capabilitiesv1.Capabilities, facts ...string) *capabilitiesv1.Capabilities {
	doc = proto.CloneOf(doc)
	for _, fact := range facts {
		doc.Unknown = append(doc.Unknown, &capabilitiesv1.UnknownFact{Fact: fact, Reason: "it hung"})
		kvm, qemu := hypervisorNamed(doc, "kvm"), vmmNamed(doc, "qemu")
		switch fact {
		case "host":
			doc.Host = nil
		case "host.ksm":
			doc.Host.KsmEnabled = nil
		case "host.realtime":
			doc.Host.Realtime = nil
		case "host.numaNodes":
			doc.Host.NumaNodes = nil
		case "host.hugePages":
			doc.Host.HugePages = nil
		case "host.cpu":
			doc.Host.Cpu = nil
		case "host.nested":
			kvm.Nested = nil
		case "confidentialComputing.sev":
			doc.ConfidentialComputing = nil
		case "hypervisors.kvm.tsc":
			kvm.Tsc = nil
		case "hypervisors.kvm.limits":
			kvm.Limits = nil
		case "hypervisors.kvm.nested":
			kvm.Nested = nil
		case "vmms.qemu.machineTypes":
			qemu.MachineTypes = nil
		case "vmms.qemu.accelerators.kvm.cpuFeatures":
			qemu.Accelerators[0].CpuFeatures = nil
		case "vmms.qemu.accelerators.kvm.cpuModels":
			qemu.Accelerators[0].CpuModels = nil
		case "vmms.qemu.accelerators.kvm.hostCpuModel":
			qemu.Accelerators[0].HostCpuModel = nil
		case "hypervisors.kvm.hypervFeatures":
			kvm.HypervFeatures = nil
		case "hypervisors.kvm.msrs":
			kvm.HypervFeatures = []string{"base", "time"}
		case "hypervisors.kvm":
			doc.Hypervisors = slices.DeleteFunc(doc.Hypervisors, func(h *capabilitiesv1.HypervisorCapabilities) bool { return h == kvm })
			doc.DefaultHypervisor = "emulation"
		case "vmms.qemu", "vmms":
			doc.Vmms[0] = &capabilitiesv1.VmmCapabilities{Name: "qemu", State: unusable}
		case "vmms.qemu.accelerators.kvm":
			qemu.Accelerators[0] = &capabilitiesv1.AcceleratorCapabilities{Hypervisor: "kvm"}
		}
	}
	return doc
}

// TestMerge: what was asked once is not lost when it can't be asked again, and
// nothing else stays.
func TestMerge(t *testing.T) {
	const domain = ".node.kubevirt.io/"
	cpu := []string{"cpu-feature" + domain, "cpu-model" + domain, "cpu-model-migration" + domain, "cpu-vendor" + domain, "host-model-cpu" + domain, "host-model-required-features" + domain}
	for _, test := range []struct {
		doc, fact string
		kept      []string // the beginnings of those labels, and of no others
	}{
		{"intel", "host.ksm", []string{"kubevirt.io/ksm-enabled"}},
		{"intel", "host.realtime", []string{"kubevirt.io/realtime"}},
		{"intel", "host.numaNodes", []string{"node.vmlet.io/numa-"}},
		{"intel", "host.hugePages", []string{"node.vmlet.io/hugepages-"}},
		{"intel", "host.hugePages.2097152", []string{"node.vmlet.io/hugepages-"}}, // a part of a set
		{"intel", "host.huge", nil},                                               // no part of the path
		{"intel", "host.cpu", []string{"node.vmlet.io/isolated-cpus"}},            // the vendor is the host model's
		{"intel", "host.nested", []string{"node.vmlet.io/nested"}},
		{"intel", "host", []string{"kubevirt.io/ksm-enabled", "kubevirt.io/realtime", "node.vmlet.io/numa-", "node.vmlet.io/hugepages-", "node.vmlet.io/isolated-cpus"}},
		{"intel", "host.clocksource", nil},
		{"amd", "confidentialComputing.sev", []string{"kubevirt.io/sev"}},
		{"intel", "hypervisors.kvm.tsc", []string{"cpu-timer" + domain}},
		{"intel", "hypervisors.kvm.hypervFeatures", []string{"hyperv" + domain}},
		{"intel", "hypervisors.kvm.msrs", []string{"hyperv" + domain}},
		{"intel", "hypervisors.kvm.limits", []string{"node.vmlet.io/max-vcpus"}},
		{"intel", "hypervisors.kvm.nested", []string{"node.vmlet.io/nested"}},
		{"intel", "vmms.qemu.machineTypes", []string{"machine-type" + domain}},
		{"intel", "vmms.qemu.accelerators.kvm.cpuFeatures", []string{"cpu-feature" + domain}},
		{"intel", "vmms.qemu.accelerators.kvm.cpuModels", []string{"cpu-model" + domain, "cpu-model-migration" + domain}},
		{"intel", "vmms.qemu.accelerators.kvm.hostCpuModel", []string{"host-model-cpu" + domain, "host-model-required-features" + domain}},
		{"intel", "hypervisors.emulation.tsc", nil},
		{"intel", "vmms.qemu.accelerators.kvm", cpu},
		{"intel", "vmms.qemu.accelerators.emulation", nil},
		{"intel", "vmms.qemu", append([]string{"machine-type" + domain, "vmm.node.vmlet.io/qemu", "node.vmlet.io/vmm", "node.vmlet.io/lazy-restore", "cpu-feature.node.vmlet.io/", "cpu-model.node.vmlet.io/"}, cpu...)},
		{"intel", "hypervisors.kvm", append([]string{"cpu-timer" + domain, "hyperv" + domain, "hypervisor.node.vmlet.io/kvm", "node.vmlet.io/hypervisor", "node.vmlet.io/max-vcpus", "node.vmlet.io/nested"}, cpu...)},
		{"amd", "vmms.cloud-hypervisor", nil}, // it is not the default, and its version is known
	} {
		t.Run(test.fact, func(t *testing.T) {
			whole := document(t, test.doc)
			previous := of(t, whole, "").Labels
			merged, kept := Merge(previous, of(t, forget(whole, test.fact), ""))
			begins := func(key string) bool {
				return slices.ContainsFunc(test.kept, func(s string) bool { return strings.HasPrefix(key, s) })
			}
			for key, value := range previous {
				if begins(key) && merged[key] != value && key != "kubevirt.io/sev-es" && key != "kubevirt.io/sev-snp" {
					t.Errorf("%s was %q and is %q", key, value, merged[key])
				}
			}
			var stayed []string
			for _, k := range kept {
				stayed = append(stayed, k.Key)
				if !begins(k.Key) || k.Fact != test.fact || k.Reason != "it hung" {
					t.Errorf("kept: %+v", k)
				}
			}
			if !slices.IsSorted(stayed) || len(test.kept) > 0 && len(stayed) == 0 {
				t.Errorf("kept: %q", stayed)
			}
			for key := range merged {
				if _, before := previous[key]; !before {
					t.Errorf("%s was not there before", key)
				}
			}
		})
	}
}

// TestMergeIsAsNow where everything is known.
func TestMergeIsAsNow(t *testing.T) {
	now := of(t, document(t, "amd"), "")
	previous := of(t, document(t, "intel"), "").Labels
	previous["kubernetes.io/hostname"] = "node-a"
	previous["kubevirt.io/schedulable"] = "true"
	merged, kept := Merge(previous, now)
	if !maps.Equal(merged, now.Labels) || len(kept) != 0 {
		t.Errorf("merged %v, kept %v", merged, kept)
	}
	if merged, kept := Merge(nil, Set{}); len(merged) != 0 || merged == nil || kept != nil {
		t.Errorf("of nothing %v, %v", merged, kept)
	}
	merged["x"] = "y"
	if _, shared := now.Labels["x"]; shared {
		t.Error("the set was changed")
	}
}

// TestMergeSecondTime: what is kept once is kept on.
func TestMergeSecondTime(t *testing.T) {
	whole := document(t, "intel")
	previous := of(t, whole, "").Labels
	now := of(t, forget(whole, "vmms.qemu", "host.ksm", "hypervisors.kvm"), "")
	first, _ := Merge(previous, now)
	second, _ := Merge(first, now)
	if !maps.Equal(first, second) {
		t.Errorf("first %v, second %v", first, second)
	}
}

// TestMergeStates: hypervisors that were tried are known, though not all of
// what they could say is.
func TestMergeStates(t *testing.T) {
	doc := document(t, "emulation")
	previous := map[string]string{
		"hypervisor.node.vmlet.io/kvm":         "works",
		"node.vmlet.io/hypervisor":             "kvm",
		"node.vmlet.io/nested":                 "true",
		"cpu-feature.node.kubevirt.io/avx512f": "true",
		"hyperv.node.kubevirt.io/vpindex":      "true",
	}
	merged, kept := Merge(previous, of(t, doc, ""))
	want := of(t, doc, "").Labels
	want["hypervisor.node.vmlet.io/kvm"] = "works" // its state is one of the things that are not known
	if !maps.Equal(merged, want) || len(kept) != 1 {
		t.Errorf("kept %v", kept)
	}
}

// TestMergeEmpty: a label without a value is one, too.
func TestMergeEmpty(t *testing.T) {
	merged, kept := Merge(map[string]string{"kubevirt.io/ksm-enabled": ""}, of(t, forget(document(t, "intel"), "host.ksm"), ""))
	if value, stayed := merged["kubevirt.io/ksm-enabled"]; value != "" || !stayed || len(kept) != 1 {
		t.Errorf("%q, %v; kept %v", value, stayed, kept)
	}
}

// TestMergeBadFile: a file changed by hand makes no label that is not valid.
func TestMergeBadFile(t *testing.T) {
	now := of(t, forget(document(t, "intel"), "vmms.qemu", "host.ksm"), "")
	previous := map[string]string{
		"cpu-feature.node.kubevirt.io/": "true", "cpu-feature.node.kubevirt.io/a b": "true",
		"cpu-feature.node.kubevirt.io/aes": "yes it has", "cpu-feature.node.kubevirt.io/a/b": "true",
		"kubevirt.io/ksm-enabled": strings.Repeat("x", 64),
	}
	merged, kept := Merge(previous, now)
	checkValid(t, merged)
	if len(kept) != 0 {
		t.Errorf("kept %v", kept)
	}
}

func FuzzMerge(f *testing.F) {
	f.Add("kubevirt.io/ksm-enabled", "true", "host.ksm", "kvm")
	f.Add("cpu-model.node.kubevirt.io/Haswell", "true", "vmms", "")
	f.Add("vmm.node.vmlet.io/x", "1", "vmms.x.version", "emulation")
	doc := document(f, "intel")
	f.Fuzz(func(t *testing.T, key, value, fact, chosen string) {
		doc := proto.CloneOf(doc)
		doc.DefaultHypervisor = chosen
		doc.Unknown = []*capabilitiesv1.UnknownFact{{Fact: fact}}
		now := of(t, doc, "")
		merged, kept := Merge(map[string]string{key: value}, now)
		checkValid(t, merged)
		if len(kept) > 1 || len(kept) == 1 && merged[key] != value {
			t.Errorf("merged %q, kept %v", merged, kept)
		}
	})
}

// TestMergeNodes: a node whose memory could not be read doesn't count as one
// that has none.
func TestMergeNodes(t *testing.T) {
	doc := document(t, "intel")
	doc.Host.NumaNodes = []*capabilitiesv1.NumaNode{{Id: 0, Cpus: "0-3", MemoryBytes: 1 << 30}, {Id: 1, Cpus: "4-7"}, {Id: 2, Cpus: "8-11"}}
	previous := of(t, doc, "").Labels
	if got := previous["node.vmlet.io/numa-memoryless-nodes"]; got != "2" {
		t.Errorf("%s nodes without memory", got)
	}
	doc.Host.NumaNodes[0].MemoryBytes = 0
	doc.Unknown = append(doc.Unknown, &capabilitiesv1.UnknownFact{Fact: "host.numaNodes", Reason: "permission denied"})
	now := of(t, doc, "")
	if got, told := now.Labels["node.vmlet.io/numa-memoryless-nodes"]; told {
		t.Errorf("%s nodes without memory, of a machine none of whose memory was read", got)
	}
	merged, kept := Merge(previous, now)
	if got := merged["node.vmlet.io/numa-memoryless-nodes"]; got != "2" || len(kept) != 2 {
		t.Errorf("%s nodes without memory; kept %+v", got, kept)
	}
}

// TestUnknown: only what a label follows from is worth a word.
func TestUnknown(t *testing.T) {
	doc := document(t, "intel")
	for fact, told := range map[string]bool{
		"host.nested": true, "host.ksm": true, "hypervisors.kvm.tsc": true, "hypervisors.mshv": true, "vmms": true,
		"host": true, "devices": false, "host.rea": false, "host.hugePages.2097152": true, "hypervisors.mshv.tsc": false, "vmms.qemu.accelerators.emulation": false, "node": false,
	} {
		set, err := Of(forget(doc, fact), "kvm")
		if err != nil {
			t.Fatal(err)
		}
		if got := set.Unknown(); (len(got) == 1 && got[0] == fact+": it hung") != told || !told && len(got) != 0 {
			t.Errorf("%s: %q", fact, got)
		}
	}
}
