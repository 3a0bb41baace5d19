// Package anchor has the object whose annotations control the autopilot, in one form whatever its
// kind, and reads those annotations. It must not know a cluster. Start reading at Choose.
package anchor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Annotations of the platform object.
const (
	Prefix = "platform.kubevirt.io/"
	// Gate switches the autopilot on: "true", or names of assets and groups.
	Gate = Prefix + "autopilot"
	// Disabled lists objects that are left alone.
	Disabled = Prefix + "disabled-resources"
	// Paused lists objects that somebody deletes or replaces again and again, and that the autopilot
	// has stopped to make again: KIND/NAMESPACE/NAME or KIND/NAME, separated by commas.
	Paused = Prefix + "paused-resources"
	// FeatureGates are more feature gates, separated by commas.
	FeatureGates = Prefix + "feature-gates"
)

// onWithoutAnnotation is whether the autopilot works where the annotation Gate is missing. The seed
// has it inverted once the project is mature.
const onWithoutAnnotation = false

// Kinds of anchors.
const (
	KindHyperConverged = "HyperConverged"
	KindKubeVirt       = "KubeVirt"
	KindConfigMap      = "ConfigMap"
)

// ConfigMapName is the ConfigMap's in the autopilot's namespace.
const ConfigMapName = "vmlet-platform"

// Anchor is the platform object. Templates see it as .Platform.
type Anchor struct {
	Kind string
	// Name and Namespace are those of the object that configures the platform: the anchor, or,
	// where that is the ConfigMap, the KubeVirt object that the golden configuration makes.
	Name, Namespace string
	// Object is the anchor as it is.
	Object map[string]any
	// Annotations are those below Prefix: each of the first object that has it.
	Annotations map[string]string
	// Scope is what the gate's annotation says.
	Scope Scope
	// Exclusions are the rules of the annotation Disabled that have no fault.
	Exclusions []Exclusion
	// warnings are about annotations that do not say what their author may think: see Faults.
	warnings []error
}

// Choose makes the anchor of the given objects. Each may be nil: HyperConverged
// before KubeVirt before ConfigMap. It returns nil if there is none.
func Choose(hyperConverged, kubeVirt, configMap *unstructured.Unstructured, namespace string) *Anchor {
	a := &Anchor{Annotations: make(map[string]string)}
	var gates []string
	for _, o := range []*unstructured.Unstructured{hyperConverged, kubeVirt, configMap} {
		if o == nil {
			continue
		}
		if a.Object == nil {
			a.Kind, a.Object, a.Name, a.Namespace = o.GetKind(), o.Object, o.GetName(), o.GetNamespace()
		}
		for key, value := range o.GetAnnotations() {
			if _, has := a.Annotations[key]; strings.HasPrefix(key, Prefix) && !has {
				a.Annotations[key] = value
			}
		}
		if _, has := o.GetAnnotations()[Gate]; has {
			gates = append(gates, o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName())
		}
	}
	if a.Object == nil {
		return nil
	}
	if a.Kind == KindConfigMap {
		a.Name, a.Namespace = "kubevirt", namespace
	}
	if len(gates) > 1 {
		a.warnings = append(a.warnings, fmt.Errorf("%s is on %s: that of the first counts; take it from the others", Gate, strings.Join(gates, " and ")))
	}
	rules, err := parseExclusions(a.Annotations[Disabled])
	if a.Exclusions = rules; err != nil {
		a.warnings = append(a.warnings, err)
	}
	value, has := a.Annotations[Gate]
	a.Scope = ParseScope(value, has)
	return a
}

// Faults say which annotations do not say what their author may think. known reports whether a name is an
// asset's or a group's.
func (a *Anchor) Faults(known func(string) bool) []error {
	all := slices.Clone(a.warnings)
	for _, name := range a.Scope.Unknown(known) {
		hint := "neither an asset nor a group"
		if slices.Contains([]string{"true", "on", "yes", "enable", "enabled", "1", "all", "*"}, strings.ToLower(name)) {
			hint += `; "true", in small letters, is all of them`
		}
		all = append(all, fmt.Errorf("%s lists %.63q, which is %s", Gate, name, hint))
	}
	return all
}

// Oldest is the object that counts of several of a kind, as vmlet-controller has it: the oldest
// that is not being deleted; nil: there is none.
func Oldest(all []*unstructured.Unstructured) *unstructured.Unstructured {
	var oldest *unstructured.Unstructured
	for _, o := range all {
		if o.GetDeletionTimestamp() == nil && (oldest == nil || older(o, oldest)) {
			oldest = o
		}
	}
	return oldest
}

func older(a, b *unstructured.Unstructured) bool {
	at, bt := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	return cmp.Or(at.Compare(bt.Time), cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName())) < 0
}

// FeatureGate reports whether a feature gate is on: in HyperConverged's list or object, in
// KubeVirt's list, or in the annotation FeatureGates.
func (a *Anchor) FeatureGate(name string) bool {
	if slices.Contains(list(a.Annotations[FeatureGates]), name) {
		return true
	}
	path := []string{"spec", "featureGates"}
	if a.Kind == KindKubeVirt {
		path = []string{"spec", "configuration", "developerConfiguration", "featureGates"}
	}
	value, _, err := unstructured.NestedFieldNoCopy(a.Object, path...)
	if err != nil {
		return false
	}
	switch gates := value.(type) {
	case map[string]any:
		on, _ := gates[name].(bool)
		return on
	case []any:
		return slices.ContainsFunc(gates, func(gate any) bool {
			if named, is := gate.(map[string]any); is {
				return named["name"] == name && named["state"] != "Disabled"
			}
			return gate == name
		})
	}
	return false
}

// PausedObjects are the objects in the annotation Paused.
func (a *Anchor) PausedObjects() []string { return list(a.Annotations[Paused]) }

// Scope is which assets the autopilot may apply.
type Scope struct {
	All   bool
	Names []string
}

// ParseScope reads the gate's annotation. "true" is all, "false" and nothing are none; else it has
// names of assets and groups, separated by commas. Case counts.
func ParseScope(value string, has bool) Scope {
	if !has {
		return Scope{All: onWithoutAnnotation}
	}
	switch value = strings.TrimSpace(value); value {
	case "true":
		return Scope{All: true}
	case "false":
		return Scope{}
	}
	return Scope{Names: list(value)}
}

// On reports whether the autopilot does anything.
func (s Scope) On() bool { return s.All || len(s.Names) > 0 }

// Includes reports whether an asset is one of those.
func (s Scope) Includes(name, group string) bool {
	return s.All || slices.Contains(s.Names, name) || slices.Contains(s.Names, group)
}

// Unknown are names that are neither an asset's nor a group's.
func (s Scope) Unknown(known func(string) bool) (names []string) {
	return slices.DeleteFunc(slices.Clone(s.Names), known)
}

// maxNames bounds a list in an annotation.
const maxNames = 1000

// list splits at commas. Blanks and empty parts are dropped, and what is listed twice; it is sorted.
func list(value string) []string {
	parts := make(map[string]bool)
	for part := range strings.SplitSeq(value, ",") {
		if part = strings.TrimSpace(part); part != "" && len(parts) < maxNames {
			parts[part] = true
		}
	}
	return slices.Sorted(maps.Keys(parts))
}
