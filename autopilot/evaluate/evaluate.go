// Package evaluate reads what package decide goes by: an asset's rendered object and the live one.
// The controller, the debug pages and `render` all use it, so that they show what is done.
package evaluate

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
