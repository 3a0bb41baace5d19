package facts

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vmlet/vmlet/autopilot/catalog"
)

const platform = `
apiVersion: v1
kind: ConfigMap
metadata: {name: vmlet-platform, namespace: vmlet, annotations: {platform.kubevirt.io/autopilot: "true"}}
`

func definition4(name, status string) string {
	plural, group, _ := strings.Cut(name, ".")
	return fmt.Sprintf(`---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %s}
spec: {group: %s, scope: Namespaced, names: {kind: %s, plural: %s}, versions: [{name: v2, served: true, storage: true}, {name: v1, served: false}]}
%s
`, name, group, strings.ToUpper(plural[:1])+strings.TrimSuffix(plural[1:], "s"), plural, status)
}

func read(t *testing.T, text string) Facts {
	t.Helper()
	o, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	f, err := o.Facts(t.Context(), "vmlet")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestKinds: what is served is established, in a version that is served; Kubernetes' own kinds are,
// and those whose group only ends like one of its own are not (A10, A64).
func TestKinds(t *testing.T) {
	f := read(t, platform+definition4("widgets.example.com", "")+
		definition4("gadgets.example.com", `status: {conditions: [{type: Established, status: "False"}]}`)+
		definition4("snapshots.snapshot.storage.k8s.io", "")+
		strings.Replace(definition4("ghosts.example.com", ""), "{name: ghosts", "{deletionTimestamp: '2026-01-01T00:00:00Z', name: ghosts", 1))
	for _, c := range []struct {
		version, kind string
		want          bool
	}{
		{"example.com/v2", "Widget", true},
		{"example.com/v1", "Widget", false},
		{"example.com/v2", "Gadget", false},
		{"example.com/v2", "Ghost", false},
		{"snapshot.storage.k8s.io/v2", "Snapshot", true},
		{"snapshot.storage.k8s.io/v2", "VolumeSnapshotClass", false},
		{"v1", "ConfigMap", true},
		{"apps/v1", "Deployment", true},
		{"storage.k8s.io/v1", "StorageClass", true},
	} {
		if got := f.Kinds.Served(schema.FromAPIVersionAndKind(c.version, c.kind)); got != c.want {
			t.Errorf("%s %s is served: %v, want %v", c.version, c.kind, got, c.want)
		}
	}
	a := &catalog.Asset{Kind: schema.GroupVersionKind{Group: "example.com", Version: "v2", Kind: "Widget"}, GateCRD: "gadgets.example.com"}
	if got := f.Kinds.Missing(a); got != "gadgets.example.com" {
		t.Errorf("missing is %q, want the gate", got)
	}
	if all := read(t, platform); !all.Kinds.Served(a.Kind) || all.Kinds.Missing(a) != "" || all.Namespaces != nil {
		t.Error("without CRDs and namespaces in a file, all count as there")
	}
}

// TestNamespaces: one that is being deleted takes no objects any more.
func TestNamespaces(t *testing.T) {
	f := read(t, platform+`---
{apiVersion: v1, kind: Namespace, metadata: {name: web}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: going, deletionTimestamp: "2026-01-01T00:00:00Z"}}
`)
	for name, want := range map[string]bool{"web": true, "going": false, "none": false} {
		if f.Namespaces[name] != want {
			t.Errorf("namespace %s is there: %v, want %v", name, f.Namespaces[name], want)
		}
	}
}

// TestHardware: what nodes have, by vmlet's labels and others' (A67).
func TestHardware(t *testing.T) {
	node := func(labels, allocatable string) string {
		return platform + "---\napiVersion: v1\nkind: Node\nmetadata: {name: x, labels: {" + labels + "}}\nstatus: {allocatable: {cpu: '4', " + allocatable + "}}\n"
	}
	for _, c := range []struct{ labels, allocatable, want string }{
		{"", "", ""},
		{"", "devices.kubevirt.io/kvm: 1k", "kvmPresent"},
		{"", "devices.kubevirt.io/kvm: '0'", ""},
		{"", "nvidia.com/TU104GL: '1'", "gpuPresent pciDevicesPresent"},
		{"feature.node.kubernetes.io/pci-10de.present: 'true'", "", "pciDevicesPresent"},
		{"feature.node.kubernetes.io/usb-ff.present: 'true'", "", "usbDevicesPresent"},
		{"feature.node.kubernetes.io/iommu-enabled: 'true'", "", "vfioCapable"},
		{"node.vmlet.io/numa-nodes: '2'", "", "numaNodesPresent"},
		{"node.vmlet.io/numa-nodes: '1'", "", ""},
		{"node.vmlet.io/hugepages-2Mi: '512'", "", "hugepagesPresent"},
	} {
		f := read(t, node(c.labels, c.allocatable))
		var got []string
		for name, is := range f.Hardware {
			if is {
				got = append(got, name)
			}
		}
		slices.Sort(got)
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s %s: %v, want %s", c.labels, c.allocatable, got, c.want)
		}
	}
	if got := slices.Sorted(maps.Keys(read(t, platform).Hardware)); !slices.Equal(got, catalog.Detectors()) {
		t.Errorf("detected are %v, want %v", got, catalog.Detectors())
	}
}

func TestParse(t *testing.T) {
	_, err := Parse([]byte("a: {\n---\nkind: X\n---\n---\n" + platform))
	for _, want := range []string{"document 0", "document 1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %s", err, want)
		}
	}
}

// TestOtherNamespaces: an object that somebody makes in his own namespace controls nothing, however old it is.
func TestOtherNamespaces(t *testing.T) {
	o, err := Parse([]byte(strings.Join([]string{
		"{apiVersion: kubevirt.io/v1, kind: KubeVirt, metadata: {name: a, namespace: team, creationTimestamp: '2026-01-01T00:00:00Z'}}",
		"{apiVersion: kubevirt.io/v1, kind: KubeVirt, metadata: {name: b, namespace: vmlet, creationTimestamp: '2026-02-01T00:00:00Z'}}",
		"{apiVersion: hco.kubevirt.io/v1beta1, kind: HyperConverged, metadata: {name: c, namespace: team}}",
	}, "\n---\n")))
	if err != nil {
		t.Fatal(err)
	}
	for namespace, want := range map[string]string{"vmlet": "KubeVirt b, 2 ignored", "team": "HyperConverged c, 1 ignored", "other": "none, 3 ignored"} {
		f, err := gather(t.Context(), o, "vmlet", namespace, o.kinds)
		if err != nil {
			t.Fatal(err)
		}
		got := "none"
		if f.Anchor != nil {
			got = f.Anchor.Kind + " " + f.Anchor.Name
		}
		if got = fmt.Sprintf("%s, %d ignored", got, len(f.Ignored)); got != want {
			t.Errorf("objects of namespace %s count: %s, want %s", namespace, got, want)
		}
	}
}
