// Package decide says what is to be done about one asset. Decide is a pure function, and the only
// place where that is decided: the controller does what it says, the debug pages and `render` show
// it. Start reading there.
package decide

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vmlet/vmlet/autopilot/anchor"
	"github.com/vmlet/vmlet/autopilot/catalog"
	"github.com/vmlet/vmlet/autopilot/facts"
	"github.com/vmlet/vmlet/autopilot/overrides"
)

// Action is what is to be done.
type Action string

// Actions.
const (
	// Skip does nothing: the asset does not apply to this cluster, or a user does not want it.
	Skip Action = "Skip"
	// Filter does nothing to an object that disabled-resources names.
	Filter Action = "Filter"
	// Fail does nothing as the asset, or an annotation on its object, is at fault.
	Fail Action = "Fail"
	// Leave does nothing to an object that is paused or unmanaged.
	Leave Action = "Leave"
	// Compare has the object that is to be applied compared with the live one.
	Compare Action = "Compare"
	// Keep does nothing: the live object is as it is to be.
	Keep Action = "Keep"
	// Apply applies the object.
	Apply Action = "Apply"
	// Delete deletes a tombstone's object.
	Delete Action = "Delete"
)

// Reasons that are more than words: metrics and events go by them.
const (
	ReasonOff              = "Off"
	ReasonScope            = "NotInScope"
	ReasonCRD              = "CRDMissing"
	ReasonConditions       = "ConditionsNotMet"
	ReasonEmpty            = "RenderedEmpty"
	ReasonRender           = "RenderFailed"
	ReasonExcluded         = "RootExclusion"
	ReasonNamespace        = "NamespaceMissing"
	ReasonUnmanaged        = "UnmanagedMode"
	ReasonPaused           = "Paused"
	ReasonInvalidIgnore    = "InvalidIgnoreFields"
	ReasonTombstoneGone    = "TombstoneGone"
	ReasonTombstoneSkipped = "TombstoneSkipped"
)

// Decision is what Decide says.
type Decision struct {
	Action Action
	// Reason is one of the constants; Detail, a sentence for people.
	Reason, Detail string
	// MissingCRD is that of ReasonCRD.
	MissingCRD string
	// OptedIn is set if somebody has asked for the asset, and it would be applied if its CRDs were
	// there.
	OptedIn bool
	// Object is what is to be applied: rendered, patched, masked, labelled. It is the rendered one
	// where it is not to be applied.
	Object *unstructured.Unstructured
	// Handover is a part of the live object that another manager has to own before the apply.
	Handover map[string]any
	// Patched is the number of a patch's operations. PatchFault is why a patch was not applied: the
	// object is applied without it.
	Patched    int
	PatchFault error
	// Customizations are "patch", "ignore" and "unmanaged", as far as annotations ask for them.
	Customizations []string
}

// Drift is what the comparison of the live object with the one to be applied has shown.
type Drift int

// Drifts.
const (
	Unknown Drift = iota
	None
	Found
)

// Input is all that Decide goes by.
type Input struct {
	Asset *catalog.Asset
	Facts facts.Facts
	// Rendered is nil, without a RenderError, if the text was empty.
	Rendered    *unstructured.Unstructured
	RenderError error
	// Live is nil if the object does not exist.
	Live *unstructured.Unstructured
	// Paused is what package pace remembers: the object is paused though nothing says so yet.
	Paused bool
	Drift  Drift
}

// Eligible is the part of a decision that needs no object. Its Action is Compare if the asset is to
// be rendered.
func Eligible(a *catalog.Asset, f facts.Facts) Decision {
	if f.Anchor == nil || !f.Anchor.Scope.On() {
		return Decision{Action: Skip, Reason: ReasonOff, Detail: "the autopilot is off: set the annotation " + anchor.Gate}
	}
	if !f.Anchor.Scope.Includes(a.Name, a.Group) {
		return Decision{Action: Skip, Reason: ReasonScope, Detail: anchor.Gate + " lists neither " + a.Name + " nor a group of it"}
	}
	unmet := Unmet(a, f)
	if crd := f.Kinds.Missing(a); crd != "" {
		return Decision{Action: Skip, Reason: ReasonCRD, Detail: "CRD missing: " + crd, MissingCRD: crd, OptedIn: asked(a, f) && len(unmet) == 0}
	}
	if len(unmet) > 0 {
		return Decision{Action: Skip, Reason: ReasonConditions, Detail: "Conditions not met: " + strings.Join(unmet, ", ")}
	}
	return Decision{Action: Compare, OptedIn: true}
}

// asked reports whether somebody has asked for just this asset, by name or by a condition: a cluster
// that is given everything lacks nothing by having no operator for some of it.
func asked(a *catalog.Asset, f facts.Facts) bool {
	return !f.Anchor.Scope.All || len(a.Conditions) > 0
}

// Unmet are the asset's conditions that do not hold, in words.
func Unmet(a *catalog.Asset, f facts.Facts) (unmet []string) {
	for _, c := range a.Conditions {
		switch c.Type {
		case catalog.ConditionAnnotation:
			if value, has := f.Anchor.Annotations[c.Key]; !has || c.Value != "" && value != c.Value {
				unmet = append(unmet, strings.TrimSuffix(c.Key+"="+c.Value, "="))
			}
		case catalog.ConditionHardware:
			if !f.Hardware[c.Detector] {
				unmet = append(unmet, c.Detector)
			}
		case catalog.ConditionFeature:
			if !f.Anchor.FeatureGate(c.Value) {
				unmet = append(unmet, "featureGate:"+c.Value)
			}
		}
	}
	return unmet
}

// Decide says what is to be done about an asset.
func Decide(in Input) Decision {
	d := Eligible(in.Asset, in.Facts)
	if d.Action != Compare {
		return d
	}
	if in.RenderError != nil {
		d.Action, d.Reason, d.Detail = Fail, ReasonRender, in.RenderError.Error()
		return d
	}
	if in.Rendered == nil {
		d.Action, d.Reason, d.Detail = Skip, ReasonEmpty, "Conditional template rendered empty"
		return d
	}
	d.Object = in.Rendered
	if rule, excluded := excludedBy(in.Facts.Anchor, in.Rendered); excluded {
		d.Action, d.Reason, d.Detail = Filter, ReasonExcluded, "Root exclusion (disabled-resources annotation): "+rule.String()
		return d
	}
	if d.left(in) {
		return d
	}
	if ns := in.Rendered.GetNamespace(); ns != "" && in.Facts.Namespaces != nil && !in.Facts.Namespaces[ns] {
		d.Action, d.Reason, d.Detail = Skip, ReasonNamespace, "namespace "+ns+" does not exist"
		return d
	}
	if !d.customize(in) {
		return d
	}
	switch {
	case in.Drift == None:
		d.Action = Keep
	case in.Drift == Found:
		d.Action = Apply
	}
	return d
}

func excludedBy(a *anchor.Anchor, o *unstructured.Unstructured) (anchor.Exclusion, bool) {
	i := slices.IndexFunc(a.Exclusions, func(e anchor.Exclusion) bool { return e.Matches(o.GetKind(), o.GetNamespace(), o.GetName()) })
	if i < 0 {
		return anchor.Exclusion{}, false
	}
	return a.Exclusions[i], true
}

// left reports whether an object is left alone as it is unmanaged or paused.
func (d *Decision) left(in Input) bool {
	annotations := map[string]string{}
	if in.Live != nil {
		annotations = in.Live.GetAnnotations()
	}
	switch {
	case annotations[overrides.ModeAnnotation] == overrides.Unmanaged:
		d.Action, d.Reason, d.Detail = Leave, ReasonUnmanaged, overrides.ModeAnnotation+" is "+overrides.Unmanaged
		d.Customizations = []string{"unmanaged"}
	case PauseWritten(in.Facts.Anchor, in.Rendered, in.Live), in.Paused:
		d.Action, d.Reason = Leave, ReasonPaused
		d.Detail = "paused after an edit war: remove the annotation " + overrides.PausedAnnotation + " from it, or its name from " + anchor.Paused + " on the platform object; or set " + overrides.ModeAnnotation + " to " + overrides.Unmanaged
	default:
		return false
	}
	return true
}

// PauseWritten reports whether a pause is written on an object, or, where there was none to write
// on, on the platform object.
func PauseWritten(a *anchor.Anchor, o, live *unstructured.Unstructured) bool {
	return live != nil && live.GetAnnotations()[overrides.PausedAnnotation] == "true" || slices.Contains(a.PausedObjects(), Key(o))
}

// Key is how an object is called in anchor.Paused and in package pace.
func Key(o *unstructured.Unstructured) string {
	return anchor.Exclusion{Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()}.String()
}

// customize makes the object that is to be applied of the rendered one. It reports false if an
// annotation is at fault in a way that nothing can be applied.
func (d *Decision) customize(in Input) bool {
	object := in.Rendered.DeepCopy()
	labels := object.GetLabels()
	if labels == nil {
		labels = make(map[string]string)
	}
	labels[catalog.ManagedByLabel] = catalog.Manager
	object.SetLabels(labels)
	d.Object = object
	if in.Live == nil {
		return true
	}
	annotations := in.Live.GetAnnotations()
	if text := annotations[overrides.PatchAnnotation]; text != "" {
		d.Customizations = append(d.Customizations, "patch")
		patched, n, err := overrides.Patch(object, text)
		if d.Patched, d.PatchFault = n, err; err == nil {
			object = patched
		}
	}
	if text := annotations[overrides.IgnoreAnnotation]; text != "" {
		d.Customizations = append(d.Customizations, "ignore")
		fields, err := overrides.ParseIgnored(text)
		masked, inWholes := overrides.Mask(object, in.Live, fields)
		if err := errors.Join(err, inWholes); err != nil {
			d.Action, d.Reason, d.Detail = Fail, ReasonInvalidIgnore, err.Error()
			return false
		}
		object, d.Handover = masked, overrides.Owned(in.Live, catalog.Manager, fields)
	}
	d.Object = object
	return true
}

// Buried says what is to be done about a tombstone.
func Buried(t catalog.Tombstone, live *unstructured.Unstructured) Decision {
	switch {
	case live == nil:
		return Decision{Action: Keep, Reason: ReasonTombstoneGone}
	case live.GetLabels()[catalog.ManagedByLabel] != catalog.Manager:
		return Decision{Action: Leave, Reason: ReasonTombstoneSkipped, Detail: fmt.Sprintf(
			"%s of %s is not deleted: its label %s is %q", Key(t.Object), t.Path, catalog.ManagedByLabel, live.GetLabels()[catalog.ManagedByLabel])}
	case live.GetDeletionTimestamp() != nil:
		return Decision{Action: Fail, Detail: fmt.Sprintf("it is being deleted since %s, and has the finalizers %q",
			live.GetDeletionTimestamp().UTC().Format(time.RFC3339), live.GetFinalizers())}
	}
	return Decision{Action: Delete, Detail: "obsolete since " + t.Path}
}
