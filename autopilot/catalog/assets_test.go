package catalog_test

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/vmlet/vmlet/autopilot/anchor"
	"github.com/vmlet/vmlet/autopilot/catalog"
	"github.com/vmlet/vmlet/autopilot/facts"
	"github.com/vmlet/vmlet/autopilot/render"
)

var update = flag.Bool("update", false, "write the golden files anew")

// objects is a cluster that has what its file has.
type objects []*unstructured.Unstructured

func (o objects) Get(_ context.Context, of schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	all := o.of(of, namespace)
	i := slices.IndexFunc(all, func(u *unstructured.Unstructured) bool { return u.GetName() == name })
	if i < 0 {
		return nil, nil
	}
	return all[i], nil
}

func (o objects) List(_ context.Context, of schema.GroupVersionResource, namespace string) ([]*unstructured.Unstructured, error) {
	return o.of(of, namespace), nil
}

func (o objects) of(of schema.GroupVersionResource, namespace string) (all []*unstructured.Unstructured) {
	for _, u := range o {
		kind := u.GroupVersionKind()
		plural := strings.ToLower(kind.Kind) + "s"
		if strings.HasSuffix(kind.Kind, "Class") {
			plural = strings.ToLower(kind.Kind) + "es"
		}
		if kind.Group == of.Group && plural == of.Resource && (namespace == "" || u.GetNamespace() == namespace) {
			all = append(all, u)
		}
	}
	return all
}

// read is the cluster that a file of testdata describes.
func read(t *testing.T, file string) objects {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	var all objects
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		u := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(document, &u.Object); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, u)
	}
	return all
}

// gather are the facts of a cluster.
func gather(t *testing.T, of objects) facts.Facts {
	t.Helper()
	configuration := ""
	for _, o := range of {
		if o.GetKind() == "HyperConverged" {
			configuration = o.GetNamespace() // as --configuration-namespace names it
		}
	}
	f, err := facts.Gather(t.Context(), of, "vmlet", configuration)
	if err != nil {
		t.Fatal(err)
	}
	if f.Anchor == nil {
		t.Fatal("the cluster has no platform object")
	}
	return f
}

func embedded(t *testing.T) *catalog.Catalog {
	t.Helper()
	c, err := catalog.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// What templates make on plain Kubernetes, and what they make otherwise on OpenShift and of the
// ConfigMap alone, changes only where somebody has looked at it.
func TestAssetsGolden(t *testing.T) {
	plain := rendered(t, "plain.yaml")
	for _, cluster := range []string{"plain", "openshift", "bare"} {
		var got bytes.Buffer
		of := rendered(t, cluster+".yaml")
		for _, a := range embedded(t).Assets {
			text := of[a.Name]
			if cluster == "plain" || text != plain[a.Name] {
				fmt.Fprintf(&got, "# %s\n%s---\n", a.Name, text)
			}
		}
		compare(t, filepath.Join("testdata", cluster+".golden.yaml"), got.Bytes())
	}
}

// rendered are the objects that the assets make in a cluster, whatever their conditions say.
func rendered(t *testing.T, cluster string) map[string]string {
	t.Helper()
	c, o := embedded(t), read(t, cluster)
	f, texts := gather(t, o), make(map[string]string)
	for _, a := range c.Assets {
		object, err := render.Renderer{Files: c.Active(), From: o}.Object(t.Context(), a, f)
		if err != nil {
			t.Errorf("asset %s: %v", a.Name, err)
		}
		if object == nil {
			continue
		}
		text, err := yaml.Marshal(short(object).Object)
		if err != nil {
			t.Fatal(err)
		}
		texts[a.Name] = string(text)
	}
	return texts
}

// short is an object without what deploy's tests compare: the texts of alerts and dashboards.
func short(o *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()
	if o.GetKind() == "PrometheusRule" {
		o.Object["spec"] = "..."
	}
	if data, _, _ := unstructured.NestedStringMap(o.Object, "data"); o.GetLabels()["grafana_dashboard"] != "" {
		for key := range data {
			_ = unstructured.SetNestedField(o.Object, "...", "data", key)
		}
	}
	return o
}

func compare(t *testing.T, golden string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the assets make something else than %s has; if they are meant to, go test -update", golden)
	}
}

// Whatever is in an annotation, an asset makes its own object with its own fields, or says why it
// makes none.
func TestHostileAnnotations(t *testing.T) {
	c, o := embedded(t), read(t, "plain.yaml")
	renderer := render.Renderer{Files: c.Active(), From: o}
	templates := 0
	for _, a := range c.Assets {
		want, _ := renderer.Object(t.Context(), a, gather(t, o))
		for _, name := range annotations(a) {
			templates++
			for _, value := range hostile() {
				f := gather(t, o)
				f.Anchor.Annotations[anchor.Prefix+name] = value
				got, err := renderer.Object(t.Context(), a, f)
				if err != nil || got == nil {
					continue
				}
				if got.GroupVersionKind() != want.GroupVersionKind() || got.GetName() != want.GetName() || got.GetNamespace() != want.GetNamespace() {
					t.Errorf("asset %s with %s %.30q makes %s %s/%s", a.Name, name, value, got.GroupVersionKind(), got.GetNamespace(), got.GetName())
				}
				for _, key := range fields(got.Object) {
					if !slices.Contains(fields(want.Object), key) && !strings.HasPrefix(key, ".metadata.labels.") {
						t.Errorf("asset %s with %s %.30q has the field %s, which it has not by itself", a.Name, name, value, key)
					}
				}
			}
		}
	}
	if templates < 10 {
		t.Errorf("templates use annotations at %d places, want 10 at least", templates)
	}
}

// hostile are values that a template without quotes would take for something else.
func hostile() []string {
	const field = "stranger: {}"
	return []string{
		`"`, "'", `"}`, "`", "{{ .Namespace }}", "}}", "{{", "a\n" + field, "a\n---\n" + field, "\r\n" + field, "x\r" + field, "x\u0085" + field, "x\u2028" + field,
		"x\u0085stranger: | #", "x\u2029stranger: | #",
		"\x85" + field, "#", "- a", "&a", "*a", "!!binary x", field, "\t", "\x00", "\x7f", "\xff", "|", ">-", "%", "@", ",", "a=b,a=c", "a=b\n" + field, "a\n" + field + "#=b", "=", "a=", "null", "true", "1e3",
		"release=x\n  namespace: kube-system", strings.Repeat("x", 4<<10), strings.Repeat("y=z,", 1<<10), strings.Repeat("\"", 4<<10), strings.Repeat("x", 4<<10+1),
	}
}

// annotations are those that an asset's template reads.
func annotations(a *catalog.Asset) (names []string) {
	for _, part := range strings.Split(strings.ReplaceAll(a.Text, "labels \"", "annotation \""), "nnotation \"")[1:] {
		name, _, _ := strings.Cut(part, `"`)
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// fields are the paths of all fields, also those of the documents in a ConfigMap's data.
func fields(object map[string]any) (all []string) {
	var add func(value any, at string)
	add = func(value any, at string) {
		switch v := value.(type) {
		case map[string]any:
			for key, below := range v {
				all = append(all, at+"."+key)
				add(below, at+"."+key)
			}
		case []any:
			for _, below := range v {
				add(below, at+"[]")
			}
		}
	}
	add(object, "")
	data, _, _ := unstructured.NestedStringMap(object, "data")
	for name, text := range data {
		if filepath.Ext(name) == "" {
			continue // a value, and no document
		}
		var document any
		if err := yaml.UnmarshalStrict([]byte(text), &document); err != nil {
			all = append(all, ".data."+name+" "+err.Error())
		}
		add(document, ".data."+name)
	}
	return all
}

// The seed's assets are there under its names, and with its groups, gates and conditions.
func TestSeedsAssets(t *testing.T) {
	c := embedded(t)
	for _, want := range []struct{ name, kind, install, group, gate, conditions string }{
		{name: "hco-golden-config", kind: "HyperConverged", install: "always"},
		{name: "prometheus-alerts", kind: "PrometheusRule", install: "always"},
		{name: "swap-enable", kind: "MachineConfig", install: "always"},
		{name: "psi-enable", kind: "MachineConfig", install: "always", group: "descheduler-loadaware", gate: "kubedeschedulers.operator.openshift.io"},
		{name: "pci-passthrough", kind: "MachineConfig", install: "opt-in", conditions: "platform.kubevirt.io/openshift=true pciDevicesPresent"},
		{name: "numa-topology", kind: "MachineConfig", install: "opt-in", conditions: "platform.kubevirt.io/openshift=true numaNodesPresent"},
		{name: "vfio-devices", kind: "MachineConfig", install: "opt-in", conditions: "platform.kubevirt.io/vfio-pci-ids= vfioCapable"},
		{name: "usb-passthrough", kind: "MachineConfig", install: "opt-in", conditions: "platform.kubevirt.io/enable-usb-passthrough=true usbDevicesPresent"},
		{name: "aaq-operator", kind: "AAQ", install: "opt-in", conditions: "platform.kubevirt.io/enable-aaq=true"},
		{name: "kubelet-perf-settings", kind: "KubeletConfig", install: "always"},
		{name: "kubelet-cpu-manager", kind: "KubeletConfig", install: "opt-in", conditions: "CPUManager"},
		{name: "node-health-check", kind: "NodeHealthCheck", install: "always", gate: "selfnoderemediationtemplates.self-node-remediation.medik8s.io"},
		{name: "descheduler-loadaware", kind: "KubeDescheduler", install: "always"},
		{name: "mtv-operator", kind: "ForkliftController", install: "opt-in", conditions: "platform.kubevirt.io/enable-mtv=true"},
		{name: "metallb-operator", kind: "MetalLB", install: "opt-in", conditions: "platform.kubevirt.io/enable-metallb=true"},
		{name: "observability-operator", kind: "UIPlugin", install: "opt-in", conditions: "platform.kubevirt.io/enable-observability=true"},
	} {
		a := c.Named(want.name)
		if a == nil {
			t.Errorf("there is no asset %s", want.name)
			continue
		}
		var conditions []string
		for _, condition := range a.Conditions {
			text := cmp.Or(condition.Key, condition.Detector, condition.Value)
			if condition.Key != "" {
				text += "=" + condition.Value
			}
			conditions = append(conditions, text)
		}
		got := []string{a.Kind.Kind, a.Component, a.Install, a.Group, a.GateCRD, strings.Join(conditions, " ")}
		if want := []string{want.kind, want.kind, want.install, want.group, want.gate, want.conditions}; !slices.Equal(got, want) {
			t.Errorf("asset %s: kind, component, install, group, gate and conditions are %q, want %q", a.Name, got, want)
		}
	}
	if first := c.Assets[0].Name; first != "hco-golden-config" {
		t.Errorf("the first asset is %s, want the golden configuration", first)
	}
}

// Users find every asset and group, and every annotation that one reads, in one table.
func TestAssetsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/platform-autopilot.md")
	if err != nil {
		t.Fatal(err)
	}
	section := string(text)
	for _, a := range embedded(t).Assets {
		words := append(annotations(a), a.Name, a.Group)
		for _, condition := range a.Conditions {
			words = append(words, strings.TrimPrefix(condition.Key, anchor.Prefix))
		}
		for _, word := range words {
			if word != "" && !strings.Contains(section, "`"+word+"`") && !strings.Contains(section, "`"+word+"=") {
				t.Errorf("docs/platform-autopilot.md has no `%s` of asset %s", word, a.Name)
			}
		}
	}
}

// TestDeviceNumbers: a value that is no list of devices is refused, and writes no line into a file of modprobe's.
func TestDeviceNumbers(t *testing.T) {
	c, o := embedded(t), read(t, "plain.yaml")
	for value, good := range map[string]bool{
		"10de:1eb8": true, "10de:1eb8,8086:1572": true, "": true, "10de": false, "10DE:1EB8": false, "10de:1eb8,": false,
		"10de:1eb8\ninstall vfio-pci /bin/sh": false, "10de:1eb8\n": false, "10de:1eb8%0Ainstall": false,
	} {
		f := gather(t, o)
		f.Anchor.Annotations[anchor.Prefix+"vfio-pci-ids"] = value
		object, err := render.Renderer{Files: c.Active(), From: o}.Object(t.Context(), c.Named("vfio-devices"), f)
		if (err == nil) != good || err != nil && !strings.Contains(err.Error(), "vfio-pci-ids: want VENDOR:DEVICE") || (object != nil) != (good && value != "") {
			t.Errorf("%q: object %v, error %v", value, object, err)
		}
	}
}
