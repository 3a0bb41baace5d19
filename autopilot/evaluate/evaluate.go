// Package evaluate reads what package decide goes by: an asset's rendered object and the live one.
// The controller, the debug pages and `render` all use it, so that they show what is done.
package evaluate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vmlet/vmlet/autopilot/anchor"
	"github.com/vmlet/vmlet/autopilot/catalog"
	"github.com/vmlet/vmlet/autopilot/decide"
	"github.com/vmlet/vmlet/autopilot/facts"
	"github.com/vmlet/vmlet/autopilot/render"
)

// Evaluator looks at assets.
type Evaluator struct {
	Renderer render.Renderer
	// Live returns an asset's object as it is; nil: there is none.
	Live func(ctx context.Context, a *catalog.Asset, of schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error)
	// Paused, if set, is what is remembered of pauses that may be written down or not.
	Paused func(key string, written bool) bool
}

// Look returns all of an asset but the comparison, and what follows from it. An error is about
// reading the live object.
func (e Evaluator) Look(ctx context.Context, a *catalog.Asset, f facts.Facts) (decide.Input, decide.Decision, error) {
	in := decide.Input{Asset: a, Facts: f}
	d := decide.Eligible(a, f)
	if d.Action != decide.Compare {
		return in, d, nil
	}
	in.Rendered, in.RenderError = e.Renderer.Object(ctx, a, f)
	if d = decide.Decide(in); d.Action != decide.Compare && d.Action != decide.Leave {
		return in, d, nil
	}
	var err error
	if in.Live, err = e.Live(ctx, a, f.Kinds.Resource(a.Kind), in.Rendered.GetNamespace(), in.Rendered.GetName()); err != nil {
		return in, d, fmt.Errorf("reading %s: %w", decide.Key(in.Rendered), err)
	}
	if e.Paused != nil {
		in.Paused = e.Paused(decide.Key(in.Rendered), decide.PauseWritten(f.Anchor, in.Rendered, in.Live))
	}
	return in, decide.Decide(in), nil
}

// Annotations are the faults of the platform object's annotations, all of them; nil: there are none.
func Annotations(c *catalog.Catalog, f facts.Facts) error {
	return errors.Join(append(f.Anchor.Faults(c.Knows), unmatched(c.Assets, f)...)...)
}

// unmatched are the rules of the annotation disabled-resources that fit no object of the catalogue, with the names of
// their kind's objects.
func unmatched(assets []*catalog.Asset, f facts.Facts) (faults []error) {
	var objects []anchor.Exclusion
	if len(f.Anchor.Exclusions) > 0 {
		for _, a := range assets {
			namespace, name, err := render.Identity(a, f)
			if err != nil {
				namespace, name = "", ""
			}
			objects = append(objects, anchor.Exclusion{Kind: a.Kind.Kind, Namespace: namespace, Name: name})
		}
	}
	for _, rule := range f.Anchor.Exclusions {
		if !slices.ContainsFunc(objects, func(o anchor.Exclusion) bool {
			// A name that can't be known here may be meant.
			return rule.Matches(o.Kind, o.Namespace, o.Name) || o.Name == "" && o.Kind == rule.Kind
		}) {
			faults = append(faults, fmt.Errorf("%s: %s is no object of the catalogue%s", anchor.Disabled, rule, ofKind(objects, rule.Kind)))
		}
	}
	return faults
}

// ofKind tells the objects of a kind, whatever case it is written in.
func ofKind(objects []anchor.Exclusion, kind string) string {
	var names []string
	for _, o := range objects {
		if strings.EqualFold(o.Kind, kind) {
			names = append(names, o.String())
		}
	}
	if len(names) == 0 {
		return ", which has none of that kind"
	}
	slices.Sort(names)
	return ", which has " + strings.Join(slices.Compact(names), ", ")
}
