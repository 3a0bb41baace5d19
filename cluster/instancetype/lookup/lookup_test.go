package lookup

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	instancetypev1 "github.com/vmlet/vmlet/api/instancetype/v1"
	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instancetype"
)

// serverOf has objects, each in YAML.
func serverOf(t *testing.T, texts ...string) client.Client {
	t.Helper()
	s := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(s), appsv1.AddToScheme(s), instancetypev1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	b := fake.NewClientBuilder()
	for _, text := range texts {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if !s.Recognizes(u.GroupVersionKind()) {
			s.AddKnownTypeWithName(u.GroupVersionKind(), &unstructured.Unstructured{})
		}
		b.WithObjects(u)
	}
	return b.WithScheme(s).Build()
}

func vmOf(t *testing.T, spec, status string) *kubevirtv1.VirtualMachine {
	t.Helper()
	vm := &kubevirtv1.VirtualMachine{}
	if err := yaml.UnmarshalStrict([]byte("{metadata: {name: web, namespace: ns, uid: u}, spec: "+spec+", status: "+status+"}"), vm); err != nil {
		t.Fatalf("%s: %v", spec, err)
	}
	return vm
}

// TestTypes: what a VM names is read as it is now, and as it was once the VM has begun with it.
func TestTypes(t *testing.T) {
	const of = "{apiVersion: instancetype.kubevirt.io/v1, kind: %s, metadata: {name: %s, uid: %s, generation: 2%s}, spec: {cpu: {guest: %d}, memory: {guest: 1Gi}}}"
	const preference = "{apiVersion: instancetype.kubevirt.io/v1, kind: %s, metadata: {name: linux%s}, spec: {preferredSubdomain: %s}}"
	const revision = `{apiVersion: apps/v1, kind: ControllerRevision, metadata: {name: %s, namespace: ns}, data: {kind: %s, spec: {cpu: {guest: %d}, preferredSubdomain: %[1]s}}}`
	server := serverOf(t,
		fmt.Sprintf(of, "VirtualMachineClusterInstancetype", "u1", "c", "", 1), fmt.Sprintf(of, "VirtualMachineInstancetype", "u1", "own", ", namespace: ns", 2),
		fmt.Sprintf(of, "VirtualMachineInstancetype", "other", "o", ", namespace: elsewhere", 3),
		fmt.Sprintf(preference, "VirtualMachineClusterPreference", "", "cluster"), fmt.Sprintf(preference, "VirtualMachinePreference", ", namespace: ns", "own"),
		fmt.Sprintf(revision, "kept", "VirtualMachineClusterInstancetype", 9), fmt.Sprintf(revision, "keptp", "VirtualMachinePreference", 0), fmt.Sprintf(revision, "odd", "Pod", 9),
	)
	for _, c := range []struct{ spec, status, want string }{
		{"{}", "{}", "cpus - subdomain - revisions [] faults []"},
		{"{instancetype: {name: u1}}", "{}", "cpus 1 subdomain - revisions [web-u1-v1beta1-c-2] faults []"},
		{"{instancetype: {name: u1, kind: virtualmachineinstancetype}}", "{}", "cpus 2 subdomain - revisions [web-u1-v1beta1-own-2] faults []"},
		{"{preference: {name: linux}}", "{}", "cpus - subdomain cluster revisions [web-linux-v1beta1--0] faults []"},
		{"{preference: {name: linux, kind: VirtualMachinePreference}, instancetype: {name: u1}}", "{}", "cpus 1 subdomain own revisions [web-u1-v1beta1-c-2 web-linux-v1beta1--0] faults []"},
		{"{instancetype: {name: other, kind: VirtualMachineInstancetype}}", "{}", "cpus - subdomain - revisions [] faults [spec.instancetype.name]"},
		{"{instancetype: {name: u1}}", "{instancetypeRef: {name: u1, controllerRevisionRef: {name: kept}}}", "cpus 9 subdomain - revisions [] faults []"},
		{"{instancetype: {name: u1, revisionName: kept}, preference: {name: gone, kind: VirtualMachinePreference, revisionName: keptp}}", "{}", "cpus 9 subdomain keptp revisions [] faults []"},
		{"{instancetype: {name: u1}}", "{instancetypeRef: {name: u1, controllerRevisionRef: {name: lost}}}", "cpus - subdomain - revisions [] faults [spec.instancetype.revisionName]"},
		{"{instancetype: {name: u1, revisionName: odd}, preference: {name: linux}}", "{}", "cpus - subdomain cluster revisions [web-linux-v1beta1--0] faults [spec.instancetype.revisionName]"},
		{"{instancetype: {inferFromVolume: v}}", "{}", "cpus - subdomain - revisions [] faults [spec.instancetype.name]"},
		{"{instancetype: {name: a, kind: b}, preference: {name: c}}", "{}", "cpus - subdomain - revisions [] faults [spec.instancetype.kind spec.preference.name]"},
	} {
		found, err := Types(t.Context(), server, vmOf(t, c.spec, c.status))
		if err != nil {
			t.Errorf("%s: %v", c.spec, err)
			continue
		}
		cpus, subdomain := "-", "-"
		if found.Types.Instancetype != nil {
			cpus = fmt.Sprint(found.Types.Instancetype.CPU.Guest)
		}
		if p := found.Types.Preference; p != nil && p.PreferredSubdomain != nil {
			subdomain = *p.PreferredSubdomain
		}
		var revisions, faults []string
		for _, r := range found.Revisions {
			revisions = append(revisions, r.Name)
		}
		for _, f := range found.Faults {
			faults = append(faults, f.Field)
		}
		if got := fmt.Sprint("cpus ", cpus, " subdomain ", subdomain, " revisions ", revisions, " faults ", faults); got != c.want {
			t.Errorf("%s with status %s:\n%s\nwant\n%s", c.spec, c.status, got, c.want)
		}
		if used := found.Used; used != nil && (used.Kind == "" || used.ControllerRevisionRef.Name == "") {
			t.Errorf("%s: the status is %v, want a kind and a revision", c.spec, used)
		}
	}
}

// TestInfer follows volumes to labels, by every way there is.
func TestInfer(t *testing.T) {
	const labels = "labels: {instancetype.kubevirt.io/default-instancetype: %s, instancetype.kubevirt.io/default-instancetype-kind: VirtualMachineInstancetype, instancetype.kubevirt.io/default-preference: p}"
	claim := func(name, namespace, names string) string {
		if names != "" {
			names = ", " + fmt.Sprintf(labels, names)
		}
		return "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: " + name + ", namespace: " + namespace + names + "}}"
	}
	other := func(kind, name, namespace, names, spec string) string {
		version := "cdi.kubevirt.io/v1beta1"
		if kind == "VolumeSnapshot" {
			version = "snapshot.storage.k8s.io/v1"
		}
		return strings.Replace(strings.Replace(claim(name, namespace, names), "PersistentVolumeClaim", kind, 1), "apiVersion: v1", "apiVersion: "+version, 1)[1:] + "//" + spec
	}
	objects := []string{claim("own", "ns", "a"), claim("filled", "ns", "b"), claim("golden", "images", "c"), claim("plain", "ns", "")}
	for _, text := range []string{
		other("VolumeSnapshot", "snap", "images", "d", "{}"),
		other("DataVolume", "labelled", "ns", "e", "{source: {pvc: {name: plain, namespace: ns}}}"),
		other("DataVolume", "cloned", "ns", "", "{source: {pvc: {name: golden, namespace: images}}}"),
		other("DataVolume", "snapped", "ns", "", "{source: {snapshot: {name: snap, namespace: images}}}"),
		other("DataVolume", "blank", "ns", "", "{source: {blank: {}}}"),
		other("DataSource", "named", "images", "f", "{source: {}}"),
		other("DataSource", "of-claim", "images", "", "{source: {pvc: {name: golden, namespace: images}}}"),
		other("DataSource", "of-snap", "images", "", "{source: {snapshot: {name: snap, namespace: images}}}"),
		other("DataSource", "of-nothing", "images", "", "{source: {}}"),
	} {
		head, spec, _ := strings.Cut(text, "//")
		objects = append(objects, "{"+strings.TrimSuffix(head, "}")+", spec: "+spec+"}")
	}
	server := serverOf(t, objects...)
	source := func(of string) string { return "{dataVolume: {name: t}}, [{metadata: {name: t}, spec: " + of + "}]" }
	for _, c := range []struct{ volume, want, says string }{
		{"{persistentVolumeClaim: {claimName: own}}", "a", ""},
		{"{persistentVolumeClaim: {claimName: plain}}", "", "PersistentVolumeClaim ns/plain has no label"},
		{"{persistentVolumeClaim: {claimName: none}}", "", "not found"},
		{"{containerDisk: {image: i}}", "", "neither a persistentVolumeClaim nor a dataVolume"},
		{"{dataVolume: {name: labelled}}", "e", ""},
		{"{dataVolume: {name: cloned}}", "c", ""},
		{"{dataVolume: {name: snapped}}", "d", ""},
		{"{dataVolume: {name: filled}}", "b", ""},
		{"{dataVolume: {name: blank}}", "", "neither from a claim"},
		{"{dataVolume: {name: none}}", "", "not found"},
		{source("{source: {pvc: {name: golden, namespace: images}}}"), "c", ""},
		{source("{source: {pvc: {name: own}}}"), "a", ""},
		{source("{source: {snapshot: {name: snap, namespace: images}}}"), "d", ""},
		{source("{source: {http: {url: u}}}"), "", "neither from a claim"},
		{source("{sourceRef: {kind: DataSource, name: named, namespace: images}}"), "f", ""},
		{source("{sourceRef: {kind: DataSource, name: of-claim, namespace: images}}"), "c", ""},
		{source("{sourceRef: {kind: DataSource, name: of-snap, namespace: images}}"), "d", ""},
		{source("{sourceRef: {kind: DataSource, name: of-nothing, namespace: images}}"), "", "DataSource images/of-nothing has no label"},
		{source("{sourceRef: {kind: DataSource, name: named}}"), "", "not found"},
	} {
		volume, templates, _ := strings.Cut(c.volume, ", [")
		if templates != "" {
			templates = "dataVolumeTemplates: [" + templates + ", "
		}
		for _, policy := range []string{"Reject", "Ignore"} {
			matcher := "{inferFromVolume: v, inferFromVolumeFailurePolicy: " + policy + "}"
			vm := vmOf(t, "{instancetype: "+matcher+", preference: "+matcher+", "+templates+
				"template: {spec: {domain: {devices: {}, memory: {guest: 512Mi}}, volumes: [{name: w, containerDisk: {image: i}}, {name: v, "+strings.TrimPrefix(volume, "{")+"]}}}", "{}")
			faults, err := Infer(t.Context(), server, vm)
			if err != nil {
				t.Errorf("%s: %v", c.volume, err)
				continue
			}
			ignored := policy == "Ignore" && !strings.Contains(c.says, "not found")
			switch {
			case c.want != "":
				if len(faults) > 0 || *vm.Spec.Instancetype != (kubevirtv1.InstancetypeMatcher{Name: c.want, Kind: "VirtualMachineInstancetype"}) || *vm.Spec.Preference != (kubevirtv1.PreferenceMatcher{Name: "p"}) {
					t.Errorf("%s: matchers are %v and %v (%v), want %s and p", c.volume, vm.Spec.Instancetype, vm.Spec.Preference, faults, c.want)
				}
				if memory := vm.Spec.Template.Spec.Domain.Memory; (memory == nil) != ignored {
					t.Errorf("%s, %s: memory is %v", c.volume, policy, memory)
				}
			case ignored:
				if len(faults) > 0 || vm.Spec.Instancetype != nil || vm.Spec.Preference != nil || vm.Spec.Template.Spec.Domain.Memory == nil {
					t.Errorf("%s: matchers are %v and %v (%v), want none", c.volume, vm.Spec.Instancetype, vm.Spec.Preference, faults)
				}
			default:
				if len(faults) != 2 || faults[0].Field != "spec.instancetype.inferFromVolume" || faults[1].Field != "spec.preference.inferFromVolume" || !strings.Contains(faults[0].Detail, c.says) {
					t.Errorf("%s: faults are %v, want one of each matcher that says %q", c.volume, faults, c.says)
				}
			}
		}
	}
}

// TestInferOfNoVolume: a volume that is not there is a fault whatever the policy.
func TestInferOfNoVolume(t *testing.T) {
	vm := vmOf(t, "{instancetype: {inferFromVolume: v, inferFromVolumeFailurePolicy: Ignore}, template: {spec: {domain: {devices: {}}}}}", "{}")
	if faults, err := Infer(t.Context(), serverOf(t), vm); err != nil || len(faults) != 1 {
		t.Errorf("faults are %v, %v, want one", faults, err)
	}
	if len(instancetype.References(vm)) != 1 {
		t.Error("the matcher is taken away")
	}
}

// TestLargeTypes: an instancetype of which each VM would keep a large copy is refused by its name; what a VM
// has begun with is read.
func TestLargeTypes(t *testing.T) {
	const of = "{apiVersion: instancetype.kubevirt.io/v1, kind: VirtualMachineInstancetype, metadata: {name: %s, namespace: ns, uid: u}, spec: {cpu: {guest: 1}, memory: {guest: 1Gi}, annotations: {a: %s}}}"
	const revision = "{apiVersion: apps/v1, kind: ControllerRevision, metadata: {name: kept, namespace: ns}, data: {kind: VirtualMachineInstancetype, spec: {cpu: {guest: 1}, annotations: {a: %s}}}}"
	long := strings.Repeat("x", maxKept)
	server := serverOf(t, fmt.Sprintf(of, "large", long), fmt.Sprintf(of, "small", long[:maxKept-1000]), fmt.Sprintf(revision, long))
	for name, want := range map[string]string{
		"{instancetype: {name: large, kind: VirtualMachineInstancetype}}":                     "make it smaller",
		"{instancetype: {name: small, kind: VirtualMachineInstancetype}}":                     "",
		"{instancetype: {name: large, kind: VirtualMachineInstancetype, revisionName: kept}}": "",
	} {
		found, err := Types(t.Context(), server, vmOf(t, name, "{}"))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if len(found.Faults) > 0 {
			got = found.Faults.ToAggregate().Error()
		}
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %.200q, want %q in it", name, got, want)
		}
	}
}
