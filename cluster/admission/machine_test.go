package admission

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
)

// TestMachineDefaultsTouchNothingElse: the patch adds an identity when a VM is created, keeps it
// when the VM is replaced by a manifest without, and rewrites nothing that a user wrote.
func TestMachineDefaultsTouchNothingElse(t *testing.T) {
	const head = "apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: web, namespace: default"
	const written = "memory: {guest: 1024Mi}, resources: {requests: {cpu: 0.5, memory: 1000000k}}, devices: {}"
	of := func(meta, domain string) string {
		return "{" + head + meta + "}, spec: {runStrategy: Always, template: {spec: {domain: " + domain + "}}}}"
	}
	domain := func(more string) string { return "{" + written + more + "}" }
	const finalizers, annotations, firmware = "/metadata/finalizers", "/metadata/annotations", "/spec/template/spec/domain/firmware"
	for _, c := range []struct {
		name, old, text string
		// want has the paths of the patch, each with its value, or "" for one that is random.
		want map[string]string
	}{
		{"created", "", of("", domain("")), map[string]string{finalizers: "", annotations: "", firmware: ""}},
		{"created with an identity", "", of("", domain(", firmware: {uuid: u, serial: s}")), map[string]string{finalizers: "", annotations: ""}},
		{"created with half of one", "", of(", annotations: {}, finalizers: []", domain(", firmware: {uuid: u}")), map[string]string{finalizers: "", annotations: "", firmware + "/serial": ""}},
		{"created without a domain", "", "{" + head + "}, spec: {runStrategy: Always, template: {spec: {}}}}", nil},
		{"created without a template", "", "{" + head + "}, spec: {runStrategy: Always}}", nil},
		{"replaced by a manifest without", of(", uid: x", domain(", firmware: {uuid: u, serial: s}")), of(", uid: x", domain("")), map[string]string{firmware: `{"serial":"s","uuid":"u"}`}},
		{"replaced by one with a bootloader", of(", uid: x", domain(", firmware: {uuid: u, serial: s}")), of(", uid: x", domain(", firmware: {uuid: '', serial: t, bootloader: {bios: {}}}")),
			map[string]string{firmware + "/uuid": `"u"`}},
		{"given another", of(", uid: x", domain(", firmware: {uuid: u, serial: s}")), of(", uid: x", domain(", firmware: {uuid: v, serial: s}")), nil},
		{"without one from before", of(", uid: x", domain("")), of(", uid: x", domain("")), nil},
		{"being deleted", of(", uid: x", domain(", firmware: {uuid: u, serial: s}")), of(", uid: x, deletionTimestamp: '2026-01-01T00:00:00Z'", domain("")), nil},
	} {
		request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Create, Object: rawOf(t, c.text)}}
		if c.old != "" {
			request.Operation, request.OldObject = admissionv1.Update, rawOf(t, c.old)
		}
		scheme := runtime.NewScheme()
		if err := kubevirtv1.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		answer := machineDefaults{config: fixed(configuration.Default()), decoder: admission.NewDecoder(scheme)}.Handle(t.Context(), request)
		if !answer.Allowed {
			t.Errorf("%s: refused: %v", c.name, answer.Result)
		}
		got := make(map[string]string)
		for _, p := range answer.Patches {
			value, err := json.Marshal(p.Value)
			if err != nil {
				t.Fatal(err)
			}
			if got[p.Path] = string(value); c.want[p.Path] == "" {
				got[p.Path] = ""
			}
			if p.Operation != "add" {
				t.Errorf("%s: the patch has %s of %s, want add alone", c.name, p.Operation, p.Path)
			}
		}
		if !maps.Equal(got, c.want) {
			t.Errorf("%s: the patch is of %q, want %q", c.name, got, slices.Sorted(maps.Keys(c.want)))
		}
	}
}

func rawOf(t *testing.T, text string) runtime.RawExtension {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return runtime.RawExtension{Raw: raw}
}
