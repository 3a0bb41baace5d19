package instancetype

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	instancetypev1 "github.com/vmlet/vmlet/api/instancetype/v1"
	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// named is a VM with these matchers and that status.
func named(t *testing.T, spec, status string) *kubevirtv1.VirtualMachine {
	t.Helper()
	vm := parse[kubevirtv1.VirtualMachine](t, "{metadata: {name: web, namespace: ns, uid: vm-uid}, spec: "+spec+", status: "+status+"}")
	return vm
}

func TestReferences(t *testing.T) {
	const instancetype, cluster = "VirtualMachineInstancetype", "VirtualMachineClusterInstancetype"
	const used = "{instancetypeRef: {name: a, kind: virtualmachineclusterinstancetype, controllerRevisionRef: {name: r}}}"
	for _, c := range []struct {
		matcher, status, kind, revision string
		faults                          []string
	}{
		{"{name: a}", "{}", cluster, "", nil},
		{"{name: a, kind: VirtualMachineClusterInstancetype}", "{}", cluster, "", nil},
		{"{name: a, kind: virtualmachineclusterinstancetypes}", "{}", cluster, "", nil},
		{"{name: a, kind: virtualMachineInstancetype}", "{}", instancetype, "", nil},
		{"{name: a, kind: virtualmachineinstancetypes}", "{}", instancetype, "", nil},
		{"{name: a, kind: VirtualMachinePreference}", "{}", "", "", []string{"spec.instancetype.kind"}},
		{"{name: a, revisionName: x}", used, cluster, "x", nil},
		{"{name: a}", used, cluster, "r", nil},
		{"{name: b}", used, cluster, "", nil},
		{"{name: a, kind: VirtualMachineInstancetype}", used, instancetype, "", nil},
		{"{name: a}", "{instancetypeRef: {name: a}}", cluster, "", nil},
		{"{}", "{}", cluster, "", []string{"spec.instancetype.name"}},
		{"{inferFromVolume: v}", "{}", cluster, "", nil},
		{"{inferFromVolume: v, name: a, kind: virtualmachineinstancetype}", "{}", instancetype, "", []string{"spec.instancetype.name", "spec.instancetype.kind"}},
	} {
		all := References(named(t, "{instancetype: "+c.matcher+"}", c.status))
		if len(all) != 1 {
			t.Fatalf("%s: %d references, want 1", c.matcher, len(all))
		}
		kind, _ := all[0].Kind()
		if kind != c.kind || all[0].Revision() != c.revision {
			t.Errorf("%s with status %s: kind %q and revision %q, want %q and %q", c.matcher, c.status, kind, all[0].Revision(), c.kind, c.revision)
		}
		if got := fieldsOf(all[0].Faults()); !slices.Equal(got, c.faults) {
			t.Errorf("%s: faults are of %q, want %q", c.matcher, got, c.faults)
		}
	}
}

func TestAnnotations(t *testing.T) {
	for spec, want := range map[string]map[string]string{
		"{}": {},
		"{instancetype: {name: a}, preference: {name: b}}":                                                                   {"kubevirt.io/cluster-instancetype-name": "a", "kubevirt.io/cluster-preference-name": "b"},
		"{instancetype: {name: a, kind: virtualmachineinstancetype}, preference: {name: b, kind: VirtualMachinePreference}}": {"kubevirt.io/instancetype-name": "a", "kubevirt.io/preference-name": "b"},
	} {
		if got := Annotations(named(t, spec, "{}")); !maps.Equal(got, want) {
			t.Errorf("%s: annotations are %q, want %q", spec, got, want)
		}
	}
}

var update = flag.Bool("update", false, "write the golden files")

// TestRevision: a ControllerRevision is as KubeVirt's, is written the same each time, and is read as
// what it was made of.
func TestRevision(t *testing.T) {
	vm := named(t, "{instancetype: {name: u1.small}, preference: {name: linux}}", "{}")
	spec := typesOf(t, "{memory: {guest: 2Gi}, cpu: {guest: 1}, annotations: {b: c, a: b}}", "{devices: {preferredDiskBus: virtio}}")
	meta := &metav1.ObjectMeta{Name: "u1.small", UID: "type-uid", Generation: 3, Labels: map[string]string{"not": "kept"}, ResourceVersion: "7"}
	made, err := NewRevision(vm, instancetypev1.KindClusterInstancetype, meta, spec.Instancetype)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, made)
	preferred, err := NewRevision(vm, instancetypev1.KindPreference, &metav1.ObjectMeta{Namespace: "ns", Name: "linux"}, spec.Preference)
	if err != nil {
		t.Fatal(err)
	}
	var read Types
	all := References(vm)
	for i, revision := range []*appsv1.ControllerRevision{made, preferred} {
		if err := all[i].ReadRevision(revision, &read); err != nil {
			t.Error(err)
		}
	}
	got, _ := json.Marshal([]any{read.Instancetype, read.Preference})
	want, _ := json.Marshal([]any{spec.Instancetype, spec.Preference})
	if string(got) != string(want) {
		t.Errorf("revisions are read as\n%s\nwant\n%s", got, want)
	}
	for text, fault := range map[string]string{
		string(preferred.Data.Raw): "keeps no instancetype, but an object of kind",
		`{"spec": {}}`:             "keeps no instancetype, but an object of kind",
		`[]`:                       "keeps no instancetype: json",
		`{"kind": "VirtualMachineInstancetype", "spec": {"cpu": 1}}`: "can't be read",
	} {
		err := all[0].ReadRevision(&appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: []byte(text)}}, &read)
		if err == nil || !strings.Contains(err.Error(), fault) {
			t.Errorf("%s: %v, want %q", text, err, fault)
		}
	}
}

func golden(t *testing.T, o any) {
	t.Helper()
	got, err := yaml.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	const file = "testdata/revision.yaml"
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("the revision is\n%s\nwant\n%s", got, want)
	}
}

// TestRevisionNames: whatever an object's name, its revision's is one, and its labels' values are.
func TestRevisionNames(t *testing.T) {
	long := strings.Repeat("a", 60) + "." + strings.Repeat("b", 192)
	vm := named(t, "{}", "{}")
	vm.Name = long
	seen := make(map[string]bool)
	for _, meta := range []metav1.ObjectMeta{{Name: long, UID: "a"}, {Name: long, UID: "b"}, {Name: long, UID: "b", Generation: 1}} {
		r, err := NewRevision(vm, instancetypev1.KindClusterInstancetype, &meta, &instancetypev1.VirtualMachineInstancetypeSpec{})
		if err != nil {
			t.Fatal(err)
		}
		if faults := validation.IsDNS1123Subdomain(r.Name); len(faults) > 0 {
			t.Errorf("%q is no name: %q", r.Name, faults)
		}
		if seen[r.Name] {
			t.Errorf("two revisions have the name %q", r.Name)
		}
		seen[r.Name] = true
		for key, value := range r.Labels {
			if faults := validation.IsValidLabelValue(value); len(faults) > 0 {
				t.Errorf("label %s: %q: %q", key, value, faults)
			}
		}
	}
}

// FuzzReadRevision: whoever names a revision may have written it. What can be read can be laid over
// a VM.
func FuzzReadRevision(f *testing.F) {
	f.Add([]byte(`{"kind": "VirtualMachineInstancetype", "spec": {"cpu": {"guest": 4}, "memory": {"guest": "1Gi", "overcommitPercent": 50}}}`),
		[]byte(`{"kind": "VirtualMachinePreference", "spec": {"cpu": {"preferredCPUTopology": "spread", "spreadOptions": {"ratio": 0}}, "requirements": {"cpu": {"guest": 1}}}}`))
	f.Fuzz(func(t *testing.T, size, preference []byte) {
		vm := &kubevirtv1.VirtualMachine{}
		vm.Spec.Instancetype, vm.Spec.Preference = &kubevirtv1.InstancetypeMatcher{Name: "a"}, &kubevirtv1.PreferenceMatcher{Name: "b"}
		vm.Spec.Template = &kubevirtv1.VirtualMachineInstanceTemplateSpec{}
		var types Types
		for i, text := range [][]byte{size, preference} {
			if err := References(vm)[i].ReadRevision(&appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: text}}, &types); err != nil {
				return
			}
		}
		was := vm.DeepCopy()
		if full, faults := Expand(vm, types); len(faults) == 0 {
			Unmet(full, types, "amd64")
		}
		if !reflect.DeepEqual(vm, was) {
			t.Error("the VM has changed")
		}
	})
}
