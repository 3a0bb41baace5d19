package admission

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	instancetypev1 "github.com/vmlet/vmlet/api/instancetype/v1"
	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/contract"
)

// parsed is an object, of a scheme's kind, or of CDI's.
func parsed(t *testing.T, s *runtime.Scheme, text string) client.Object {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	o, err := s.New(u.GroupVersionKind())
	if runtime.IsNotRegisteredError(err) {
		return u
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict([]byte(text), o); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return o.(client.Object)
}

func schemeOf(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(s), appsv1.AddToScheme(s), kubevirtv1.AddToScheme(s), instancetypev1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	s.AddKnownTypeWithName(schema.GroupVersionKind{Group: "cdi.kubevirt.io", Version: "v1beta1", Kind: "DataVolume"}, &unstructured.Unstructured{})
	s.AddKnownTypeWithName(schema.GroupVersionKind{Group: "cdi.kubevirt.io", Version: "v1beta1", Kind: "DataSource"}, &unstructured.Unstructured{})
	return s
}

// common are the objects of deploy/common-instancetypes.
func common(t *testing.T, s *runtime.Scheme) (all []client.Object) {
	t.Helper()
	for _, name := range []string{"instancetypes", "linux", "windows"} {
		text, err := os.ReadFile("../../deploy/common-instancetypes/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range strings.Split(string(text), "\n---\n") {
			all = append(all, parsed(t, s, document))
		}
	}
	return all
}

// world is a cluster with the common types and a few objects.
type world struct {
	mutate   machineDefaults
	validate machineRules
	objects  client.Client
}

func newWorld(t *testing.T, texts ...string) *world {
	t.Helper()
	s := schemeOf(t)
	objects := common(t, s)
	for _, text := range append(texts,
		"{apiVersion: instancetype.kubevirt.io/v1, kind: VirtualMachineInstancetype, metadata: {name: tiny, namespace: default}, spec: {cpu: {guest: 1}, memory: {guest: 128Mi}}}",
		"{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: plain, namespace: default}}",
		"{apiVersion: cdi.kubevirt.io/v1beta1, kind: DataSource, metadata: {name: ubuntu, namespace: images}, spec: {source: {pvc: {name: ubuntu-24, namespace: images}}}}",
		"{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: ubuntu-24, namespace: images, labels: {instancetype.kubevirt.io/default-instancetype: u1.medium, instancetype.kubevirt.io/default-preference: ubuntu}}}",
	) {
		objects = append(objects, parsed(t, s, text))
	}
	c := fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).Build()
	config := configuration.Default()
	config.DefaultArchitecture = "amd64"
	return &world{
		mutate: machineDefaults{config: fixed(config), objects: c, decoder: admission.NewDecoder(s)},
		validate: machineRules{Rules{
			Settings: fixed(config), Hypervisors: []string{"kvm"}, objects: c,
			HasCDI: func(context.Context) (bool, error) { return true, nil },
		}},
		objects: c,
	}
}

// admit takes a VM through both webhooks. It returns the VM as it is stored.
func (w *world) admit(t *testing.T, old *kubevirtv1.VirtualMachine, text string) (*kubevirtv1.VirtualMachine, error) {
	t.Helper()
	vm := &kubevirtv1.VirtualMachine{}
	if err := yaml.UnmarshalStrict([]byte(text), vm); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	vm.Namespace = "default"
	raw, err := json.Marshal(vm)
	if err != nil {
		t.Fatal(err)
	}
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: raw}}}
	answer := w.mutate.Handle(t.Context(), request)
	if !answer.Allowed {
		return nil, &refusedError{*answer.Result}
	}
	stored := patched(t, raw, answer)
	ctx := admission.NewContextWithRequest(t.Context(), request)
	if old != nil {
		stored.Status = old.Status
	}
	_, err = w.validate.ValidateUpdate(ctx, old, stored)
	return stored, err
}

type refusedError struct{ status metav1.Status }

func (e *refusedError) Error() string         { return e.status.Message }
func (e *refusedError) Status() metav1.Status { return e.status }

// patched applies a webhook's patch, which adds, replaces and removes members of objects.
func patched(t *testing.T, raw []byte, answer admission.Response) *kubevirtv1.VirtualMachine {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil {
		t.Fatal(err)
	}
	for _, p := range answer.Patches {
		parts := strings.Split(strings.TrimPrefix(p.Path, "/"), "/")
		at := object
		for _, part := range parts[:len(parts)-1] {
			at = at[part].(map[string]any)
		}
		if p.Operation == "remove" {
			delete(at, parts[len(parts)-1])
		} else {
			at[parts[len(parts)-1]] = p.Value
		}
	}
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	vm := &kubevirtv1.VirtualMachine{}
	if err := json.Unmarshal(text, vm); err != nil {
		t.Fatal(err)
	}
	return vm
}

// TestTypesOfManifests: manifests of users pass, and what is inferred is written into them.
func TestTypesOfManifests(t *testing.T) {
	files, err := filepath.Glob("../testdata/types/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("manifests are %v, %v: want more", files, err)
	}
	w := newWorld(t)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		vm, err := w.admit(t, nil, string(text))
		if err != nil {
			t.Errorf("%s is refused: %v", file, err)
			continue
		}
		first, _, _ := strings.Cut(string(text), "\n")
		want, inferred := strings.CutPrefix(first, "# inferred: ")
		if !inferred {
			continue
		}
		got := []string{"-", "-"}
		if m := vm.Spec.Instancetype; m != nil {
			got[0] = m.Name + m.InferFromVolume
			if vm.Spec.Template.Spec.Domain.Memory != nil {
				t.Errorf("%s: the memory that virtctl writes for want of an instancetype is left", file)
			}
		}
		if m := vm.Spec.Preference; m != nil {
			got[1] = m.Name + m.InferFromVolume
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: inferred are %q, want %q", file, got, want)
		}
	}
}

// TestCommonTypes: each common preference fits a VM of a common size; those that ask for what vmlet
// has not are refused for that.
func TestCommonTypes(t *testing.T) {
	w := newWorld(t)
	refused := map[string][]string{"windows.11": {
		"spec.template.spec.domain.devices.tpm", "spec.template.spec.domain.firmware.bootloader.efi.persistent", "spec.template.spec.domain.firmware.bootloader.efi.secureBoot",
	}}
	var sizes, preferences []string
	for _, o := range common(t, schemeOf(t)) {
		switch o := o.(type) {
		case *instancetypev1.VirtualMachineClusterInstancetype:
			sizes = append(sizes, o.Name)
			if cpu := o.Labels["instancetype.kubevirt.io/cpu"]; cpu != yamlOf(t, o.Spec.CPU.Guest) {
				t.Errorf("%s: label cpu is %s, want %d", o.Name, cpu, o.Spec.CPU.Guest)
			}
			if memory := o.Labels["instancetype.kubevirt.io/memory"]; memory != o.Spec.Memory.Guest.String() {
				t.Errorf("%s: label memory is %s, want %v", o.Name, memory, o.Spec.Memory.Guest.String())
			}
		case *instancetypev1.VirtualMachineClusterPreference:
			preferences = append(preferences, o.Name)
		}
	}
	if len(sizes) < 10 || len(preferences) < 20 {
		t.Fatalf("common types are %q and %q, want more", sizes, preferences)
	}
	vm := func(size, preference string) string {
		return "{metadata: {name: a}, spec: {runStrategy: Always, instancetype: {name: " + size + "}, preference: {name: " + preference + "}, template: {spec: {domain: {devices: {}}, volumes: [{name: root, persistentVolumeClaim: {claimName: a}}]}}}}"
	}
	for _, size := range sizes {
		if _, err := w.admit(t, nil, strings.Replace(vm(size, "x"), ", preference: {name: x}", "", 1)); err != nil {
			t.Errorf("%s is refused: %v", size, err)
		}
	}
	for _, preference := range preferences {
		_, err := w.admit(t, nil, vm("u1.large", preference))
		got := fields(err)
		slices.Sort(got)
		if !slices.Equal(got, refused[preference]) {
			t.Errorf("%s: refused for %q, want %q: %v", preference, got, refused[preference], err)
		}
		if err != nil && !strings.Contains(err.Error(), "(from preference "+preference+")") {
			t.Errorf("%s: %v does not name the preference", preference, err)
		}
	}
}

// TestTypesAreJudged: what doesn't fit is refused by its field, all at once.
func TestTypesAreJudged(t *testing.T) {
	const size = "{apiVersion: instancetype.kubevirt.io/v1, kind: VirtualMachineClusterInstancetype, metadata: {name: pinned}, spec: {cpu: {guest: 2, dedicatedCPUPlacement: true, realtime: {}}, memory: {guest: 1Gi, hugepages: {pageSize: 2Mi}}}}"
	w := newWorld(t, size)
	vm := func(matchers, template string) string {
		return "{metadata: {name: a}, spec: {runStrategy: Halted, " + matchers + ", template: {spec: " + template + "}}}"
	}
	const bare = "{domain: {devices: {}}}"
	const domain = "spec.template.spec.domain."
	for _, c := range []struct {
		matchers, template string
		want               []string
		says               string
	}{
		{"instancetype: {name: u1.small}", bare, nil, ""},
		{"instancetype: {name: u2.small}, preference: {name: plan9, kind: VirtualMachinePreference}", "{domain: {devices: {tpm: {}}}}",
			[]string{domain + "devices.tpm"}, ""},
		{"instancetype: {name: u1.small, kind: VirtualMachineInstancetype}", bare, nil, ""},
		{"instancetype: {name: u1.small, kind: Flavor}", bare, []string{"spec.instancetype.kind"}, "VirtualMachineClusterInstancetype"},
		{"instancetype: {name: u1.small, revisionName: gone}", bare, []string{"spec.instancetype.revisionName"}, "does not exist"},
		{"instancetype: {}", bare, []string{"spec.instancetype.name"}, "name or inferFromVolume"},
		{"instancetype: {name: u1.small}", "{domain: {devices: {}, cpu: {cores: 2}, memory: {guest: 1Gi}}}", []string{domain + "cpu.cores", domain + "memory.guest"}, "conflicts with selected instance type u1.small"},
		{"instancetype: {name: pinned}", "{domain: {devices: {tpm: {}}}}", []string{domain + "cpu.realtime", domain + "devices.tpm"}, "(from instancetype pinned)"},
		{"instancetype: {name: u1.nano}, preference: {name: fedora}", bare, []string{"spec.instancetype"}, "the preference requires 2Gi"},
		{"preference: {name: fedora}", "{domain: {devices: {}, memory: {guest: 2Gi}}}", nil, ""},
		{"preference: {name: fedora}", "{domain: {devices: {}, memory: {guest: 1Gi}}}", []string{domain + "memory"}, "requires 2Gi"},
		{"instancetype: {inferFromVolume: root}", "{domain: {devices: {}}, volumes: [{name: root, persistentVolumeClaim: {claimName: plain}}]}", []string{"spec.instancetype.inferFromVolume"}, "has no label " + contract.LabelDefaultInstancetype},
		{"instancetype: {inferFromVolume: root, inferFromVolumeFailurePolicy: Ignore}", bare, []string{"spec.instancetype.inferFromVolume"}, "root"},
	} {
		_, err := w.admit(t, nil, vm(c.matchers, c.template))
		got := fields(err)
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s with %s: refused for %q, want %q: %v", c.matchers, c.template, got, c.want, err)
		}
		if c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s with %s: %v, want %q", c.matchers, c.template, err, c.says)
		}
		if err != nil && strings.Contains(err.Error(), "no TPM is supported yet: leave it out (from") {
			t.Errorf("%s: the VM's own TPM is said to be of its types: %v", c.matchers, err)
		}
	}
}

// TestAwaitedTypes: a VM may be made before what it names, and says so.
func TestAwaitedTypes(t *testing.T) {
	w := newWorld(t)
	vm := new(kubevirtv1.VirtualMachine)
	const text = "{metadata: {name: a, namespace: default}, spec: {runStrategy: Always, instancetype: {name: later}, preference: {name: plan9, kind: VirtualMachinePreference}, template: {spec: {domain: {devices: {}}}}}}"
	if err := yaml.UnmarshalStrict([]byte(text), vm); err != nil {
		t.Fatal(err)
	}
	warnings, err := w.validate.ValidateCreate(admission.NewContextWithRequest(t.Context(), admission.Request{}), vm)
	want := admission.Warnings{
		"spec.instancetype.name: there is no VirtualMachineClusterInstancetype later: the VM can't start before there is",
		"spec.preference.name: there is no VirtualMachinePreference plan9, in namespace default: the VM can't start before there is",
	}
	if err != nil || !slices.Equal(warnings, want) {
		t.Errorf("warnings are %q (%v), want %q", warnings, err, want)
	}
}

// TestTypesOfUpdates: a VM whose instancetype is gone, or has changed, can still be stopped and changed.
func TestTypesOfUpdates(t *testing.T) {
	w := newWorld(t)
	text := func(strategy, size, more string) string {
		return "{metadata: {name: a, uid: u}, spec: {runStrategy: " + strategy + ", instancetype: {name: " + size + "}, template: {spec: {domain: {devices: {}" + more + "}, volumes: [{name: root, persistentVolumeClaim: {claimName: a}}]}}}}"
	}
	old, err := w.admit(t, nil, text("Always", "u1.small", ""))
	if err != nil {
		t.Fatal(err)
	}
	size := &instancetypev1.VirtualMachineClusterInstancetype{ObjectMeta: metav1.ObjectMeta{Name: "u1.small"}}
	if err := w.objects.Delete(t.Context(), size); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text string
		want []string
	}{
		{text("Always", "u1.small", ""), nil},
		{text("Halted", "u1.small", ""), nil},
		{text("Halted", "u1.gone", ""), nil},
		{text("Halted", "u1.medium", ""), nil},
		{text("Halted", "u1.medium", ", memory: {guest: 1Gi}"), []string{"spec.template.spec.domain.memory.guest"}},
	} {
		if _, err := w.admit(t, old, c.text); !slices.Equal(fields(err), c.want) {
			t.Errorf("%s: refused for %q, want %q: %v", c.text, fields(err), c.want, err)
		}
	}
}
