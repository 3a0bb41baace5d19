package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vmlet/vmlet/autopilot/anchor"
	"github.com/vmlet/vmlet/autopilot/apply"
	"github.com/vmlet/vmlet/autopilot/catalog"
	"github.com/vmlet/vmlet/autopilot/decide"
	"github.com/vmlet/vmlet/autopilot/facts"
	"github.com/vmlet/vmlet/autopilot/metrics"
	"github.com/vmlet/vmlet/autopilot/overrides"
	"github.com/vmlet/vmlet/autopilot/pace"
)

const (
	normalType  = corev1.EventTypeNormal
	warningType = corev1.EventTypeWarning
)

// state is what is remembered of an asset. Only the worker that has its item uses it.
type state struct {
	watch watch
	// same are the version and the object that a comparison has found alike.
	same, sameObject string
	// applied is the object that was applied last.
	applied string
	// told are the events already sent, which are not repeated.
	told map[string]string
}

func (c *controller) state(item string) *state {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.states[item] == nil {
		c.states[item] = &state{}
	}
	return c.states[item]
}

// live reads an asset's object, and has it followed from then on.
func (c *controller) live(ctx context.Context, a *catalog.Asset, of schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	st, w := c.state(a.Name), watch{of, namespace, name}
	if st.watch != w {
		c.drop(st.watch)
		*st = state{watch: w}
	}
	one := c.follow(w, withoutStatus, func() { c.queue.Add(a.Name) })
	if one.informer.HasSynced() {
		for _, o := range one.informer.GetStore().List() {
			if u, is := o.(*unstructured.Unstructured); is {
				return u.DeepCopy(), nil
			}
		}
	}
	return apply.Reader{API: c.API}.Get(ctx, of, namespace, name)
}

// asset reconciles one asset.
func (c *controller) asset(ctx context.Context, a *catalog.Asset, f facts.Facts) (after time.Duration, err error) {
	began := c.Now()
	c.Metrics.Reconciles.WithLabelValues(a.Name).Inc()
	in, d, err := c.look.Look(ctx, a, f)
	v := &visit{controller: c, asset: a, facts: f, in: in, d: d, told: make(map[string]string), shown: c.shown(a, f, d)}
	if in.Rendered != nil {
		v.shown.Kind, v.shown.Name, v.shown.Namespace = in.Rendered.GetKind(), in.Rendered.GetName(), in.Rendered.GetNamespace()
		defer func() {
			c.Metrics.Observe(v.shown.Kind, v.shown.Name, v.shown.Namespace, c.Now().Sub(began))
		}()
	}
	if err == nil {
		after, err = v.act(ctx)
	} else {
		v.shown.Known = in.Rendered != nil
	}
	if err != nil {
		c.Metrics.Errors.WithLabelValues(a.Name).Inc()
	}
	c.Metrics.Set(a.Name, &v.shown)
	c.state(a.Name).told = v.told
	return after, err
}

// shown is what metrics say of an asset before anything is done.
func (c *controller) shown(a *catalog.Asset, f facts.Facts, d decide.Decision) metrics.Asset {
	shown := metrics.Asset{Customizations: d.Customizations, Wanted: d.OptedIn, Needs: make(map[metrics.Kind]bool), RenderFailed: d.Reason == decide.ReasonRender}
	if !facts.BuiltIn(a.Kind) {
		shown.Needs[metrics.Kind{Group: a.Kind.Group, Version: a.Kind.Version, Kind: a.Kind.Kind}] = !f.Kinds.Served(a.Kind)
	}
	if plural, group, is := strings.Cut(a.GateCRD, "."); is {
		if group != a.Kind.Group || plural != facts.Resource(a.Kind).Resource {
			shown.Needs[metrics.Kind{Group: group, Kind: plural}] = !f.Kinds.Defined(a.GateCRD)
		}
	}
	return shown
}

// visit is one reconciliation of an asset.
type visit struct {
	*controller
	asset *catalog.Asset
	facts facts.Facts
	in    decide.Input
	d     decide.Decision
	shown metrics.Asset
	told  map[string]string
}

// say records an event about what goes on, if that is news.
func (v *visit) say(kind, reason, note string) {
	v.told[reason] = note
	if v.state(v.asset.Name).told[reason] != note {
		v.event(v.facts, v.in.Rendered, kind, reason, note)
	}
}

// tell records an event about something that has happened.
func (v *visit) tell(kind, reason, note string) { v.event(v.facts, v.in.Rendered, kind, reason, note) }

// act does what was decided.
func (v *visit) act(ctx context.Context) (time.Duration, error) {
	switch v.d.Action {
	case decide.Compare:
		return v.compare(ctx)
	case decide.Leave:
		return 0, v.leave(ctx)
	case decide.Fail:
		v.shown.Known = v.in.Rendered != nil
		v.say(warningType, v.d.Reason, fmt.Sprintf("asset %s: %s", v.asset.Name, v.d.Detail))
		return 0, fmt.Errorf("%s: %s", v.d.Reason, v.d.Detail)
	}
	if v.d.Reason == decide.ReasonCRD && v.d.OptedIn {
		v.say(warningType, v.d.Reason, fmt.Sprintf("asset %s waits for CustomResourceDefinition %s", v.asset.Name, v.d.MissingCRD))
	}
	v.Log.Debug("asset skipped", "asset", v.asset.Name, "reason", v.d.Reason, "detail", v.d.Detail)
	st := v.state(v.asset.Name)
	v.drop(st.watch)
	*st = state{}
	return 0, nil
}

// leave is for objects that are unmanaged or paused.
func (v *visit) leave(ctx context.Context) error {
	if v.d.Reason == decide.ReasonUnmanaged {
		v.say(normalType, v.d.Reason, decide.Key(v.in.Rendered)+" is left alone: "+v.d.Detail)
		return nil
	}
	v.shown.Known, v.shown.Paused = true, true
	if !decide.PauseWritten(v.facts.Anchor, v.in.Rendered, v.in.Live) {
		return v.pause(ctx)
	}
	return nil
}

// compare compares the object with the live one, and applies it if they differ.
func (v *visit) compare(ctx context.Context) (time.Duration, error) {
	v.shown.Known = true
	v.customizations()
	of, st := v.facts.Kinds.Resource(v.asset.Kind), v.state(v.asset.Name)
	text, err := json.Marshal(v.d.Object.Object)
	if err != nil {
		return 0, err
	}
	object, version := string(text), ""
	var fields [][]string
	v.in.Drift = decide.Found
	if v.in.Live != nil {
		version = v.in.Live.GetResourceVersion()
		drift := false
		switch {
		case v.d.Handover != nil: // a dry run would show what is handed over as deleted
			drift = true
		case st.same != version || st.sameObject != object:
			if fields, drift, err = v.write.Drift(ctx, of, v.in.Live, v.d.Object); err != nil {
				return v.failed(err)
			}
		}
		if !drift {
			v.in.Drift = decide.None
		}
	}
	if decide.Decide(v.in).Action == decide.Keep {
		st.same, st.sameObject, st.applied = version, object, object
		v.shown.Compliant = true
		return 0, nil
	}
	// What is compared for the first time may differ as another version of the autopilot applied it.
	foreign := len(fields) > 0 && (st.applied == object || st.applied == "" && overrides.Taken(v.in.Live, catalog.Manager, fields))
	if foreign {
		v.Metrics.Drifts.WithLabelValues(v.asset.Name).Inc()
		v.say(warningType, "DriftDetected", fmt.Sprintf("%s was changed by somebody else: %s", decide.Key(v.d.Object), named(fields)))
	}
	if after, stop, err := v.throttled(ctx); stop {
		return after, err
	}
	result, err := v.write.Apply(ctx, of, v.in.Live, v.d.Object, v.d.Handover)
	if err != nil {
		v.pace.Return(decide.Key(v.in.Rendered))
		return v.failed(err)
	}
	st.same, st.sameObject, st.applied = result.GetResourceVersion(), object, object
	v.catchUp(ctx, st.watch, result)
	v.shown.Compliant = true
	v.Metrics.Applies.WithLabelValues(v.asset.Name).Inc()
	delete(v.told, "DriftDetected")
	v.tell(normalType, "AssetApplied", fmt.Sprintf("%s of asset %s was applied", decide.Key(v.d.Object), v.asset.Name))
	if foreign {
		v.tell(normalType, "DriftCorrected", fmt.Sprintf("%s is as it is to be again", decide.Key(v.d.Object)))
	}
	return 0, nil
}

// maxFields bounds how many fields are named in an event.
const maxFields = 5

func named(fields [][]string) string {
	var names []string
	for _, keys := range fields[:min(len(fields), maxFields)] {
		names = append(names, "/"+strings.Join(keys, "/"))
	}
	return strings.Join(names, ", ")
}

// customizations says what a user has otherwise.
func (v *visit) customizations() {
	switch {
	case v.d.PatchFault != nil:
		v.say(warningType, "InvalidPatch", fmt.Sprintf("%s is applied without its patch: %v", decide.Key(v.in.Rendered), v.d.PatchFault))
	case v.d.Patched > 0:
		v.say(normalType, "PatchApplied", fmt.Sprintf("%s has a patch of %d operations", decide.Key(v.in.Rendered), v.d.Patched))
	}
}

// failed is for errors of the API server's.
func (v *visit) failed(err error) (time.Duration, error) {
	if apply.NamespaceMissing(err) { // it went after the facts were read
		v.shown.Known = false
		return 0, nil
	}
	v.say(warningType, "ApplyFailed", fmt.Sprintf("%s of asset %s could not be applied: %v", decide.Key(v.d.Object), v.asset.Name, err))
	return 0, fmt.Errorf("applying %s: %w", decide.Key(v.d.Object), err)
}

// throttled asks whether the object may be written now. If not, stop is set.
func (v *visit) throttled(ctx context.Context) (after time.Duration, stop bool, err error) {
	key := decide.Key(v.in.Rendered)
	answer := v.pace.Take(key)
	switch answer.Verdict {
	case pace.Wait:
		v.Metrics.Throttles.WithLabelValues(v.asset.Name).Inc()
		if answer.First {
			v.tell(warningType, "Throttled", fmt.Sprintf("%s was applied %d times and changed by somebody else each time: the next time in %s", key, pace.Capacity, answer.After))
		}
		return answer.After, true, nil
	case pace.War:
		if answer.First {
			v.Metrics.Thrashing.WithLabelValues(v.shown.Kind, v.shown.Name, v.shown.Namespace).Inc()
			v.tell(warningType, "ThrashingDetected", fmt.Sprintf(
				"%s is paused: somebody else changes or deletes it again and again. Find who; then remove the annotation %s from it, or its name from %s on the platform object. To leave it to the other one, set %s to %s on it",
				key, overrides.PausedAnnotation, anchor.Paused, overrides.ModeAnnotation, overrides.Unmanaged))
		}
		v.shown.Paused = true
		return 0, true, v.pause(ctx)
	}
	return 0, false, nil
}

// pause writes down that an object is paused: on it, or, where it does not exist or what is on it is
// replaced, on the platform object. Until that has worked, package pace remembers it.
func (v *visit) pause(ctx context.Context) error {
	key, w := decide.Key(v.in.Rendered), v.state(v.asset.Name).watch
	on, annotation, value, version := v.in.Live, overrides.PausedAnnotation, "true", ""
	onObject := on != nil && !v.pace.Lost(key)
	if !onObject {
		on = &unstructured.Unstructured{Object: v.facts.Anchor.Object}
		w = v.reader.platform(v.facts)
		annotation, value, version = anchor.Paused, strings.Join(append(v.facts.Anchor.PausedObjects(), key), ","), on.GetResourceVersion()
	}
	written, err := v.write.Annotate(ctx, w.of, on, annotation, value, version)
	if err != nil {
		return fmt.Errorf("writing on %s that %s is paused: %w", decide.Key(on), key, err)
	}
	// What is followed must not be read before it has this: it would look as if somebody had resumed.
	if v.catchUp(ctx, w, written) {
		v.pace.Noted(key, onObject)
	}
	return nil
}

// bury deletes a tombstone's object.
func (c *controller) bury(ctx context.Context, t catalog.Tombstone, f facts.Facts) error {
	key, of := decide.Key(t.Object), f.Kinds.Resource(t.Object.GroupVersionKind())
	shown := metrics.Tombstone{Kind: t.Object.GetKind(), Name: t.Object.GetName(), Namespace: t.Object.GetNamespace()}
	st, told := c.state(key), make(map[string]string)
	defer func() {
		c.Metrics.Bury(key, shown)
		st.told = told
	}()
	say := func(reason, note string) {
		if told[reason] = note; st.told[reason] != note {
			c.event(f, nil, warningType, reason, note)
		}
	}
	live, err := apply.Reader{API: c.API}.Get(ctx, of, t.Object.GetNamespace(), t.Object.GetName())
	d := decide.Buried(t, live)
	switch {
	case err != nil:
	case d.Action == decide.Leave:
		shown.Status = -2
		say(d.Reason, d.Detail)
	case d.Action == decide.Fail:
		err = errors.New(d.Detail)
	case d.Action == decide.Delete:
		if err = c.write.Delete(ctx, of, live); err == nil {
			c.event(f, nil, normalType, "TombstoneDeleted", fmt.Sprintf("%s was deleted: %s", key, d.Detail))
		}
	}
	if err != nil {
		shown.Status = -1
		say("TombstoneFailed", fmt.Sprintf("%s of %s could not be deleted: %v", key, t.Path, err))
	}
	return err
}
