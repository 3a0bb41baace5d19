package labels

import (
	"encoding/json"
	"flag"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	capabilitiesv1 "github.com/vmlet/vmlet/proto/vmlet/capabilities/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

func document(t testing.TB, name string) *capabilitiesv1.Capabilities {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", name+".doc.json"))
	if err != nil {
		t.Fatal(err)
	}
	doc := new(capabilitiesv1.Capabilities)
	if err := protojson.Unmarshal(raw, doc); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return doc
}

func documents(t testing.TB) []string {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.doc.json")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no documents: %v", err)
	}
	var names []string
	for _, p := range paths {
		names = append(names, strings.TrimSuffix(filepath.Base(p), ".doc.json"))
	}
	return names
}

func of(t testing.TB, doc *capabilitiesv1.Capabilities, hypervisor string) Set {
	t.Helper()
	set, err := Of(doc, hypervisor)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestGolden compares all labels and notes of each document in testdata.
func TestGolden(t *testing.T) {
	for _, name := range documents(t) {
		t.Run(name, func(t *testing.T) {
			set := of(t, document(t, name), "")
			got, err := json.MarshalIndent(struct {
				Labels map[string]string `json:"labels"`
				Notes  []string          `json:"notes,omitempty"`
			}{set.Labels, set.Notes}, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", name+".labels.json")
			if *update {
				if err := os.WriteFile(path, append(got, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil || string(want) != string(got)+"\n" {
				t.Errorf("%s (%v): -update writes it; got\n%s", path, err, got)
			}
		})
	}
}

// The syntax as Kubernetes documents it, said in another way than in name.go.
var (
	nameSyntax   = regexp.MustCompile(`\A([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]\z`)
	domainSyntax = regexp.MustCompile(`\A[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\z`)
)

func checkValid(t testing.TB, labels map[string]string) {
	t.Helper()
	for key, value := range labels {
		domain, name, _ := strings.Cut(key, "/")
		if len(domain) > 253 || !domainSyntax.MatchString(domain) || !nameSyntax.MatchString(name) {
			t.Errorf("key %q is not valid", key)
		}
		if value != "" && !nameSyntax.MatchString(value) {
			t.Errorf("value %q of %q is not valid", value, key)
		}
		if strings.HasSuffix(domain, "kubernetes.io") {
			t.Errorf("key %q has a prefix of Kubernetes", key)
		}
		if _, _, found := familyOf(key); !found {
			t.Errorf("key %q is of no family", key)
		}
	}
}

func TestLabelsAreValid(t *testing.T) {
	for _, name := range documents(t) {
		checkValid(t, of(t, document(t, name), "").Labels)
	}
}

// TestWhatKubeVirtAsks: the selectors that its controller would put on a pod.
func TestWhatKubeVirtAsks(t *testing.T) {
	for _, test := range []struct {
		doc, hypervisor, key, want string // want empty: it is not there
	}{
		{"intel", "", "cpu-feature.node.kubevirt.io/sse4.1", "true"},
		{"intel", "", "cpu-model.node.kubevirt.io/Skylake-Server-IBRS", "true"},
		{"intel", "", "cpu-model.node.kubevirt.io/EPYC", ""},
		{"intel", "", "cpu-model-migration.node.kubevirt.io/EPYC", "true"},
		{"intel", "", "cpu-model.node.kubevirt.io/qemu64", ""},
		{"intel", "", "cpu-model-migration.node.kubevirt.io/Opteron_G1", ""},
		{"intel", "", "cpu-model.node.kubevirt.io/Conroe-v1", ""}, // another name of an obsolete one
		{"intel", "", "cpu-model.node.kubevirt.io/Haswell-v1", "true"},
		{"intel", "", "host-model-cpu.node.kubevirt.io/Skylake-Server-IBRS", "true"},
		{"intel", "", "host-model-required-features.node.kubevirt.io/md-clear", "true"},
		{"intel", "", "host-model-required-features.node.kubevirt.io/mpx", ""}, // taken from the model
		{"intel", "", "cpu-vendor.node.kubevirt.io/Intel", "true"},
		{"intel", "", "machine-type.node.kubevirt.io/q35", "true"},
		{"intel", "", "machine-type.node.kubevirt.io/pc-q35-7.2", "true"},
		{"intel", "", "hyperv.node.kubevirt.io/synictimer", "true"},
		{"intel", "", "cpu-timer.node.kubevirt.io/tsc-frequency", "2394374000"},
		{"intel", "", "cpu-timer.node.kubevirt.io/tsc-scalable", "true"},
		{"amd", "", "cpu-timer.node.kubevirt.io/tsc-scalable", "false"},
		{"intel", "", "kubevirt.io/realtime", "true"},
		{"amd", "", "kubevirt.io/realtime", ""},
		{"intel", "", "kubevirt.io/ksm-enabled", "true"},
		{"amd", "", "kubevirt.io/ksm-enabled", "false"},
		{"amd", "", "kubevirt.io/sev-snp", "true"},
		{"intel", "", "kubevirt.io/sev", ""},
		{"amd", "emulation", "kubevirt.io/sev", ""},
		{"amd", "", "kubevirt.io/tdx", ""},
		{"s390x", "", "kubevirt.io/s390-pv", "true"},
		{"s390x", "", "cpu-vendor.node.kubevirt.io/IBM", "true"}, // not the machine's word, IBM/S390
		{"s390x", "", "cpu-timer.node.kubevirt.io/tsc-frequency", ""},
		{"s390x", "", "host-model-cpu.node.kubevirt.io/gen15a-base", "true"},
		{"arm64", "", "host-model-cpu.node.kubevirt.io/neoverse-n1", ""},
		{"arm64", "", "cpu-feature.node.kubevirt.io/sve", ""},
		{"arm64", "", "cpu-vendor.node.kubevirt.io/ARM", ""},
		{"arm64", "", "machine-type.node.kubevirt.io/virt", "true"},
		{"old", "", "node-labeller.kubevirt.io/obsolete-host-model", "true"},
		{"old", "", "host-model-cpu.node.kubevirt.io/Opteron_G2", "true"},
		{"old", "", "cpu-vendor.node.kubevirt.io/AMD", "true"}, // the machine's: the model has none
		{"intel", "", "node-labeller.kubevirt.io/obsolete-host-model", ""},
		{"intel", "emulation", "cpu-model.node.kubevirt.io/Westmere", "true"},
		{"intel", "emulation", "cpu-model.node.kubevirt.io/Haswell", ""},
		{"intel", "emulation", "hyperv.node.kubevirt.io/vpindex", ""},
		{"intel", "emulation", "node.vmlet.io/hypervisor", "emulation"},
		{"intel", "emulation", "hypervisor.node.vmlet.io/kvm", "works"},
		{"intel", "", "cpu-model.node.vmlet.io/emulation.Westmere", "true"},
		{"intel", "", "cpu-model.node.vmlet.io/emulation.Haswell", ""},
		{"intel", "", "cpu-model.node.vmlet.io/kvm.Haswell-v1", ""}, // KubeVirt's label has it
		{"intel", "emulation", "cpu-model.node.vmlet.io/kvm.Haswell-v1", "true"},
		{"intel", "emulation", "hyperv.node.vmlet.io/kvm.vpindex", "true"},
		{"intel", "mshv", "node.vmlet.io/hypervisor", ""},
		{"intel", "mshv", "cpu-feature.node.kubevirt.io/aes", ""},
		{"emulation", "", "cpu-vendor.node.kubevirt.io/AMD", "true"}, // what a guest sees
		{"emulation", "", "kubevirt.io/sev", ""},
	} {
		got, there := of(t, document(t, test.doc), test.hypervisor).Labels[test.key]
		if got != test.want || there != (test.want != "") {
			t.Errorf("%s %s: %s = %q (%v), want %q", test.doc, test.hypervisor, test.key, got, there, test.want)
		}
	}
}

func TestUnknownHypervisor(t *testing.T) {
	_, err := Of(document(t, "intel"), "xen")
	if err == nil || !strings.Contains(err.Error(), `"xen"`) || !strings.Contains(err.Error(), "emulation, kvm, mshv") {
		t.Errorf("got %v", err)
	}
	if set, err := Of(nil, ""); err != nil || len(set.Labels) != 0 || len(set.Notes) == 0 {
		t.Errorf("of nothing: %+v, %v", set, err)
	}
}

// TestOrderDoesNotMatter shuffles every list of each document.
func TestOrderDoesNotMatter(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, name := range documents(t) {
		doc := document(t, name)
		want := of(t, doc, "")
		slices.Sort(want.Notes)
		for range 20 {
			shuffled := proto.CloneOf(doc)
			shuffle(random, shuffled)
			got := of(t, shuffled, "")
			slices.Sort(got.Notes)
			if !maps.Equal(got.Labels, want.Labels) || !slices.Equal(got.Notes, want.Notes) {
				t.Fatalf("%s: in another order other labels: %v, want %v", name, got, want)
			}
		}
	}
}

func shuffle(r *rand.Rand, doc *capabilitiesv1.Capabilities) {
	mix(r, doc.GetHypervisors())
	mix(r, doc.GetVmms())
	mix(r, doc.GetObsoleteCpuModels())
	mix(r, doc.GetUnknown())
	mix(r, doc.GetHost().GetNumaNodes())
	mix(r, doc.GetHost().GetHugePages())
	for _, h := range doc.GetHypervisors() {
		mix(r, h.GetHypervFeatures())
	}
	for _, v := range doc.GetVmms() {
		mix(r, v.GetMachineTypes())
		mix(r, v.GetAccelerators())
		for _, a := range v.GetAccelerators() {
			mix(r, a.GetCpuModels())
			mix(r, a.GetCpuFeatures())
			mix(r, a.GetHostCpuModel().GetRequiredFeatures())
		}
	}
}

func mix[T any](r *rand.Rand, list []T) {
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
}

// FuzzOf takes any document.
func FuzzOf(f *testing.F) {
	for _, name := range documents(f) {
		raw, err := proto.Marshal(document(f, name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		doc := new(capabilitiesv1.Capabilities)
		if proto.Unmarshal(raw, doc) != nil {
			return
		}
		set := of(t, doc, "")
		checkValid(t, set.Labels)
		merged, _ := Merge(set.Labels, set)
		if !maps.Equal(merged, set.Labels) {
			t.Errorf("merged with itself it is another: %v, %v", merged, set.Labels)
		}
	})
}

// TestNotes: a group of labels that is missing says why.
func TestNotes(t *testing.T) {
	doc := document(t, "intel")
	doc.Vmms[0].Accelerators[0] = &capabilitiesv1.AcceleratorCapabilities{Hypervisor: "kvm", Reason: "it crashed"}
	for _, test := range []struct{ doc, hypervisor, want string }{
		{"intel", "mshv", "mshv can't be used, so there are no labels of what its guests can have: /dev/mshv is not there"},
		{"crashed", "", "qemu can't be used under kvm, so there are no labels of CPUs: it crashed"},
		{"amd", "emulation", "qemu can't be used under emulation, so there are no labels of CPUs: nothing is known of it"},
	} {
		d := doc
		if test.doc != "crashed" {
			d = document(t, test.doc)
		}
		if got := of(t, d, test.hypervisor).Notes; len(got) != 1 || got[0] != test.want {
			t.Errorf("%s: %q, want %q", test.hypervisor, got, test.want)
		}
	}
}
