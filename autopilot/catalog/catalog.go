// Package catalog has the autopilot's assets: their texts, and what metadata.yaml says of them. It
// must not know a cluster. Start reading at Load.
package catalog

import (
	"cmp"
	"embed"
	"io/fs"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ManagedByLabel is on every object that the autopilot applies, with the value Manager. A
// tombstone's object is deleted only if it has it.
const (
	ManagedByLabel = "platform.kubevirt.io/managed-by"
	Manager        = "virt-platform-autopilot"
)

// Values of an asset's install.
const (
	Always = "always"
	OptIn  = "opt-in"
)

// Types of conditions.
const (
	ConditionAnnotation = "annotation"
	ConditionHardware   = "hardware-detection"
	ConditionFeature    = "feature-gate"
)

// Condition has to hold for an asset to be applied.
type Condition struct {
	Type string `json:"type"`
	// Key is an annotation of the platform object; with an empty Value any value will do.
	Key string `json:"key,omitempty"`
	// Value is the annotation's, or the name of a feature gate.
	Value    string `json:"value,omitempty"`
	Detector string `json:"detector,omitempty"`
}

// Detectors are what can be asked of the cluster's nodes. Package facts says how it is found out.
func Detectors() []string {
	return []string{"gpuPresent", "hugepagesPresent", "kvmPresent", "numaNodesPresent", "pciDevicesPresent", "usbDevicesPresent", "vfioCapable"}
}

// Read is a kind that an asset's template looks up.
type Read struct {
	Group     string `json:"group,omitempty"`
	Version   string `json:"version"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
}

// Asset is one object that the autopilot applies.
type Asset struct {
	Name       string      `json:"name"`
	Group      string      `json:"group,omitempty"`
	Path       string      `json:"path"`
	GateCRD    string      `json:"gate_crd,omitempty"`
	Phase      int         `json:"phase"`
	Install    string      `json:"install"`
	Component  string      `json:"component"`
	Order      int         `json:"reconcile_order"`
	Conditions []Condition `json:"conditions,omitempty"`
	Reads      []Read      `json:"reads,omitempty"`

	// Text is the file's; Template, whether it is one.
	Text     string `json:"-"`
	Template bool   `json:"-"`
	// Kind is the object's, NameText and NamespaceText the texts of its name and namespace: parts of
	// the template, which say nothing of what is looked up.
	Kind                    schema.GroupVersionKind `json:"-"`
	NameText, NamespaceText string                  `json:"-"`
}

// First reports whether an asset is tried before others: the golden configuration, on whose result
// the others' templates depend.
func (a *Asset) First() bool { return a.Phase == 0 }

// Tombstone is an object that earlier versions applied, and that is deleted.
type Tombstone struct {
	Path   string
	Object *unstructured.Unstructured
}

// Catalog is all assets in the order of phase, reconcile_order and name, and the tombstones. It is
// not changed after it is loaded.
type Catalog struct {
	Assets     []*Asset
	Tombstones []Tombstone
	active     fs.FS
}

//go:embed assets
var embedded embed.FS

// Embedded is the catalogue that the program comes with.
func Embedded() (*Catalog, error) {
	files, err := fs.Sub(embedded, "assets")
	if err != nil {
		return nil, err
	}
	return Load(files)
}

// Named is the asset of that name; nil: there is none.
func (c *Catalog) Named(name string) *Asset {
	i := slices.IndexFunc(c.Assets, func(a *Asset) bool { return a.Name == name })
	if i < 0 {
		return nil
	}
	return c.Assets[i]
}

// Active are the files below active, which templates may read.
func (c *Catalog) Active() fs.FS { return c.active }

// Knows reports whether a name is an asset's or a group's.
func (c *Catalog) Knows(name string) bool {
	return slices.ContainsFunc(c.Assets, func(a *Asset) bool { return a.Name == name || a.Group == name })
}

func byOrder(a, b *Asset) int {
	return cmp.Or(cmp.Compare(a.Phase, b.Phase), cmp.Compare(a.Order, b.Order), cmp.Compare(a.Name, b.Name))
}
