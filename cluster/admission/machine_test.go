package admission

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
)

// TestMachineDefaultsTouchNothingElse: the patch adds an identity when a VM is created, keeps it
// when the VM is replaced by a manifest without, and rewrites nothing that a user wrote.
func TestMachineDefaultsTouchNothingElse(t *testing.T) {
	const head = "apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: web, namespace: default"
	const written = "memory: {guest: 1024Mi}, resources: {requests: {cpu: 500m, memory: 1000000k}}, devices: {}"
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

// TestMachineRepairs: what KubeVirt's admission puts right is put right, and nothing else is touched.
func TestMachineRepairs(t *testing.T) {
	const head = "apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: web, namespace: default}, spec: {runStrategy: Always, "
	for _, c := range []struct{ name, spec, want string }{
		{"no domain", "template: {spec: {}}", `[{"op":"add","path":"/spec/template/spec/domain","value":{"devices":{}}}]`},
		{"no spec", "template: {}", `[{"op":"add","path":"/spec/template/spec","value":{"domain":{"devices":{}}}}]`},
		{"null for a domain", "template: {spec: {domain: null}}", `[{"op":"add","path":"/spec/template/spec/domain","value":{"devices":{}}}]`},
		{"no devices", "template: {spec: {domain: {}}}", `[{"op":"add","path":"/spec/template/spec/domain/devices","value":{}}]`},
		{"whole numbers", "template: {spec: {domain: {devices: {}, cpu: {cores: 2}, resources: {requests: {cpu: 1, memory: 67108864}}}}}", "null"},
		{"a fraction", "template: {spec: {domain: {devices: {}, resources: {requests: {cpu: 0.5, memory: 64Mi}}}}}",
			`[{"op":"replace","path":"/spec/template/spec/domain/resources/requests/cpu","value":"500m"}]`},
		{"a fraction of a byte", "template: {spec: {domain: {devices: {}, memory: {guest: 2222222.5}}}}",
			`[{"op":"replace","path":"/spec/template/spec/domain/memory/guest","value":"2222222500m"}]`},
		{"in a list, below a name with a slash", "template: {spec: {domain: {devices: {}, resources: {limits: {example.com/~a: 1.5}}}, volumes: [{name: a}, {name: b, emptyDisk: {capacity: 2.5}}]}}",
			`[{"op":"replace","path":"/spec/template/spec/domain/resources/limits/example.com~1~0a","value":"1500m"},{"op":"replace","path":"/spec/template/spec/volumes/1/emptyDisk/capacity","value":"2500m"}]`},
	} {
		raw, vm := rawOf(t, "{"+head+c.spec+"}}").Raw, new(kubevirtv1.VirtualMachine)
		if err := json.Unmarshal(raw, vm); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		patches, err := repairs(raw, vm)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		slices.SortFunc(patches, func(a, b jsonpatch.Operation) int { return strings.Compare(a.Path, b.Path) })
		if got, err := json.Marshal(patches); err != nil || string(got) != c.want {
			t.Errorf("%s: the patch is %s (%v), want %s", c.name, got, err, c.want)
		}
	}
}

// TestUndecodable: an object that can't be decoded is left to its definition, which names all its faults.
func TestUndecodable(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := kubevirtv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).Build()
	hooks := Handlers(c, Rules{Settings: fixed(configuration.Default())})
	for path, kind := range map[string]string{PathMutateMachine: "VirtualMachine", PathMutateInstance: "VirtualMachineInstance", PathProtectInstanceOrigin: "VirtualMachineInstance"} {
		spec := "domain: {devices: {}, memory: {guest: 4GB}}"
		if kind == "VirtualMachine" {
			spec = "template: {spec: {" + spec + "}}"
		}
		object := rawOf(t, "{apiVersion: kubevirt.io/v1, kind: "+kind+", metadata: {name: web, namespace: default}, spec: {"+spec+"}}")
		review, err := json.Marshal(admissionv1.AdmissionReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
			Request:  &admissionv1.AdmissionRequest{UID: "u", Operation: admissionv1.Create, Object: object},
		})
		if err != nil {
			t.Fatal(err)
		}
		request, answer := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(review)), httptest.NewRecorder()
		request.Header.Set("Content-Type", "application/json")
		hooks[path].ServeHTTP(answer, request)
		var said admissionv1.AdmissionReview
		if err := json.Unmarshal(answer.Body.Bytes(), &said); err != nil || said.Response == nil || !said.Response.Allowed {
			t.Errorf("%s: the answer is %s (%v), want that it is allowed", path, answer.Body, err)
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
