// Package facts has what the autopilot knows of a cluster before it looks at any asset: the platform
// object, which kinds are served, which namespaces there are, what nodes have. It reads them through
// a Reader: the controller's caches, the API server, or files. Start reading at Gather.
package facts

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vmlet/vmlet/autopilot/anchor"
	"github.com/vmlet/vmlet/autopilot/catalog"
	"github.com/vmlet/vmlet/contract"
)

// Reader reads objects. What is not there is nil, or not in the list, and no error; neither is a
// kind that the cluster does not have.
type Reader interface {
	Get(ctx context.Context, of schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error)
	List(ctx context.Context, of schema.GroupVersionResource, namespace string) ([]*unstructured.Unstructured, error)
}

// CRDs, Nodes, Namespaces, ConfigMaps and KubeVirts are what Gather reads, beside HyperConverged.
func CRDs() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
}

// Nodes are the cluster's.
func Nodes() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
}

// Namespaces are the cluster's.
func Namespaces() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
}

// ConfigMaps are those of the autopilot's namespace, where it reads them for itself.
func ConfigMaps() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
}

// KubeVirts are KubeVirt objects, of any namespace.
func KubeVirts() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: "kubevirts"}
}

// HyperConverged are the objects of HyperConverged's operator, in a version that is served.
func (k Kinds) HyperConverged() schema.GroupVersionResource {
	of := schema.GroupVersionResource{Group: "hco.kubevirt.io", Version: "v1beta1", Resource: "hyperconvergeds"}
	if d, is := k.defined["hyperconvergeds.hco.kubevirt.io"]; is && !slices.Contains(d.versions, of.Version) && len(d.versions) > 0 {
		of.Version = d.versions[0]
	}
	return of
}

// Facts are those of a cluster at one time.
type Facts struct {
	// Anchor is nil if there is no platform object.
	Anchor *anchor.Anchor
	Kinds  Kinds
	// Namespaces are the existing ones that are not being deleted; nil: all count as there.
	Namespaces map[string]bool
	// Hardware has every detector, and whether any node has it.
	Hardware map[string]bool
	// Version is that of the oldest kubelet, as v1.36.3: what a node has to understand. "": no node is known.
	Version string
	// Namespace is the autopilot's own.
	Namespace string
	// Ignored are HyperConverged and KubeVirt objects of other namespaces than the one that counts.
	Ignored []*unstructured.Unstructured
}

// Gather reads the facts. The objects that control the autopilot are in its own namespace and, but for the
// ConfigMap, in that of the configuration, which is the same if it is empty: those elsewhere may be any user's.
func Gather(ctx context.Context, from Reader, namespace, configuration string) (Facts, error) {
	definitions, err := from.List(ctx, CRDs(), "")
	if err != nil {
		return Facts{}, fmt.Errorf("reading CustomResourceDefinitions: %w", err)
	}
	return gather(ctx, from, namespace, cmp.Or(configuration, namespace), KindsOf(definitions))
}

func gather(ctx context.Context, from Reader, namespace, configuration string, kinds Kinds) (f Facts, err error) {
	f = Facts{Namespace: namespace, Kinds: kinds}
	var hyper, kube []*unstructured.Unstructured
	if f.Kinds.Served(schema.GroupVersionKind{Group: "hco.kubevirt.io", Version: f.Kinds.HyperConverged().Version, Kind: anchor.KindHyperConverged}) {
		if hyper, err = from.List(ctx, f.Kinds.HyperConverged(), ""); err != nil {
			return f, fmt.Errorf("reading HyperConverged objects: %w", err)
		}
	}
	if f.Kinds.Served(schema.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: anchor.KindKubeVirt}) {
		if kube, err = from.List(ctx, KubeVirts(), ""); err != nil {
			return f, fmt.Errorf("reading KubeVirt objects: %w", err)
		}
	}
	configMap, err := from.Get(ctx, ConfigMaps(), namespace, anchor.ConfigMapName)
	if err != nil {
		return f, fmt.Errorf("reading ConfigMap %s/%s: %w", namespace, anchor.ConfigMapName, err)
	}
	f.Anchor = anchor.Choose(anchor.Oldest(f.counting(hyper, configuration)), anchor.Oldest(f.counting(kube, configuration)), configMap, namespace)
	nodes, err := from.List(ctx, Nodes(), "")
	if err != nil {
		return f, fmt.Errorf("reading Nodes: %w", err)
	}
	f.Hardware, f.Version = hardware(nodes), oldest(nodes)
	namespaces, err := from.List(ctx, Namespaces(), "")
	if err != nil {
		return f, fmt.Errorf("reading Namespaces: %w", err)
	}
	f.Namespaces = make(map[string]bool)
	for _, n := range namespaces {
		f.Namespaces[n.GetName()] = n.GetDeletionTimestamp() == nil
	}
	return f, nil
}

// counting are the objects of a namespace; empty: all. The others are ignored.
func (f *Facts) counting(all []*unstructured.Unstructured, namespace string) (counts []*unstructured.Unstructured) {
	for _, o := range all {
		if namespace == "" || o.GetNamespace() == namespace {
			counts = append(counts, o)
		} else {
			f.Ignored = append(f.Ignored, o)
		}
	}
	return counts
}

// detectors are what an asset's condition may ask of nodes: by labels that vmlet's agent and Node
// Feature Discovery write, and by what the kubelet has to give.
func detectors() map[string]func(labels map[string]string, has func(prefix string) bool) bool {
	resource := func(prefixes ...string) func(map[string]string, func(string) bool) bool {
		return func(_ map[string]string, has func(string) bool) bool { return slices.ContainsFunc(prefixes, has) }
	}
	label := func(is func(key, value string) bool) func(map[string]string, func(string) bool) bool {
		return func(labels map[string]string, _ func(string) bool) bool {
			for key, value := range labels {
				if is(key, value) {
					return true
				}
			}
			return false
		}
	}
	const nfd = "feature.node.kubernetes.io/"
	gpus := resource("nvidia.com/", "amd.com/gpu", "gpu.intel.com/")
	return map[string]func(map[string]string, func(string) bool) bool{
		"kvmPresent": resource(contract.ResourceKVM),
		"gpuPresent": gpus,
		"pciDevicesPresent": func(labels map[string]string, has func(string) bool) bool {
			return gpus(labels, has) || label(func(key, value string) bool {
				return value == "true" && strings.HasPrefix(key, nfd+"pci-") && strings.HasSuffix(key, "present")
			})(labels, has)
		},
		"usbDevicesPresent": label(func(key, value string) bool {
			return value == "true" && strings.HasPrefix(key, nfd+"usb-") && strings.HasSuffix(key, "present")
		}),
		"vfioCapable": func(labels map[string]string, has func(string) bool) bool {
			// Node Feature Discovery has no such label any more: a rule of the administrator's may write it.
			return labels[nfd+"iommu-enabled"] == "true" || has(contract.ResourceIOMMUFD)
		},
		"numaNodesPresent": func(labels map[string]string, _ func(string) bool) bool {
			n := labels[contract.LabelNUMANodes]
			return n != "" && n != "0" && n != "1"
		},
		"hugepagesPresent": label(func(key, _ string) bool { return strings.HasPrefix(key, contract.LabelHugePages) }),
	}
}

func hardware(nodes []*unstructured.Unstructured) map[string]bool {
	found := make(map[string]bool)
	for name, detect := range detectors() {
		found[name] = slices.ContainsFunc(nodes, func(n *unstructured.Unstructured) bool {
			allocatable, _, _ := unstructured.NestedMap(n.Object, "status", "allocatable")
			return detect(n.GetLabels(), func(prefix string) bool {
				for resource, quantity := range allocatable {
					if strings.HasPrefix(resource, prefix) && quantity != "0" {
						return true
					}
				}
				return false
			})
		})
	}
	return found
}

// oldest is the lowest version that nodes' kubelets say; one that says none that can be read doesn't count.
func oldest(nodes []*unstructured.Unstructured) string {
	var lowest *version.Version
	for _, n := range nodes {
		text, _, _ := unstructured.NestedString(n.Object, "status", "nodeInfo", "kubeletVersion")
		if v, err := version.ParseGeneric(text); err == nil && (lowest == nil || v.LessThan(lowest)) {
			lowest = v
		}
	}
	if lowest == nil {
		return ""
	}
	return "v" + lowest.String()
}

// Kinds are those that a cluster serves.
type Kinds struct {
	defined map[string]definition
	// all is set where nothing is known of the cluster: then all kinds count as served.
	all bool
}

type definition struct {
	group, kind, plural string
	versions            []string
	namespaced          bool
}

// AllKinds counts every kind as served: for files without a cluster.
func AllKinds() Kinds { return Kinds{all: true} }

// KindsOf are those of CustomResourceDefinitions that are established and not being deleted.
func KindsOf(definitions []*unstructured.Unstructured) Kinds {
	k := Kinds{defined: make(map[string]definition)}
	for _, o := range definitions {
		if o.GetDeletionTimestamp() != nil || !established(o) {
			continue
		}
		d := definition{}
		d.group, _, _ = unstructured.NestedString(o.Object, "spec", "group")
		d.kind, _, _ = unstructured.NestedString(o.Object, "spec", "names", "kind")
		d.plural, _, _ = unstructured.NestedString(o.Object, "spec", "names", "plural")
		scope, _, _ := unstructured.NestedString(o.Object, "spec", "scope")
		d.namespaced = scope == "Namespaced"
		for _, v := range items(o.Object, "spec", "versions") {
			if name, _ := v["name"].(string); v["served"] == true {
				d.versions = append(d.versions, name)
			}
		}
		k.defined[o.GetName()] = d
	}
	return k
}

func established(o *unstructured.Unstructured) bool {
	return slices.ContainsFunc(items(o.Object, "status", "conditions"), func(c map[string]any) bool {
		return c["type"] == "Established" && c["status"] == "True"
	})
}

func items(object map[string]any, path ...string) (maps []map[string]any) {
	all, _, _ := unstructured.NestedSlice(object, path...)
	for _, item := range all {
		if m, is := item.(map[string]any); is {
			maps = append(maps, m)
		}
	}
	return maps
}

// Defined reports whether there is a CustomResourceDefinition of that name, and it is established.
func (k Kinds) Defined(name string) bool {
	_, is := k.defined[name]
	return is || k.all
}

// BuiltIn reports whether a kind is Kubernetes' own, which no CustomResourceDefinition brings.
func BuiltIn(kind schema.GroupVersionKind) bool {
	return clientgoscheme.Scheme.Recognizes(kind) || kind.Group == CRDs().Group
}

// Served reports whether objects of a kind can be had in its version.
func (k Kinds) Served(kind schema.GroupVersionKind) bool {
	d, is := k.find(kind)
	return k.all || BuiltIn(kind) || is && slices.Contains(d.versions, kind.Version)
}

// Missing is the CustomResourceDefinition that an asset lacks; "": none.
func (k Kinds) Missing(a *catalog.Asset) string {
	if !k.Served(a.Kind) {
		return Resource(a.Kind).GroupResource().String()
	}
	if a.GateCRD != "" && !k.Defined(a.GateCRD) {
		return a.GateCRD
	}
	return ""
}

// Resource is how a kind's objects are addressed.
func (k Kinds) Resource(kind schema.GroupVersionKind) schema.GroupVersionResource {
	if d, is := k.find(kind); is {
		return kind.GroupVersion().WithResource(d.plural)
	}
	return Resource(kind)
}

func (k Kinds) find(kind schema.GroupVersionKind) (definition, bool) {
	for _, d := range k.defined {
		if d.group == kind.Group && d.kind == kind.Kind {
			return d, true
		}
	}
	return definition{}, false
}

// Resource is how objects of a kind are usually addressed: by the plural of its name.
func Resource(kind schema.GroupVersionKind) schema.GroupVersionResource {
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	return plural
}
