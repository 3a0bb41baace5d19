// Package apply writes objects to a cluster: by server-side apply, and only where a dry run shows
// that something would change. Start reading at Applier.
package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/vmlet/vmlet/autopilot/catalog"
	"github.com/vmlet/vmlet/autopilot/overrides"
)

// Released owns fields that the autopilot owned until a user masked them: without an owner they
// would be deleted.
const Released = "vmlet-autopilot-released"

// pauser owns the annotations that say that an object is paused.
const pauser = catalog.Manager + "-pause"

// Reader reads from the API server. It is a facts.Reader.
type Reader struct{ API dynamic.Interface }

// Get returns an object; nil: there is none, or no such kind.
func (r Reader) Get(ctx context.Context, of schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	o, err := r.API.Resource(of).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return o, err
}

// List returns the objects of a namespace, or all; none if there is no such kind.
func (r Reader) List(ctx context.Context, of schema.GroupVersionResource, namespace string) (all []*unstructured.Unstructured, err error) {
	list, err := r.API.Resource(of).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return all, nil
}

// Applier writes objects.
type Applier struct{ API dynamic.Interface }

// Drift reports which fields an apply of an object would change, by their keys, and whether it would
// change anything: it may only change who owns a field. Fields that others alone own are none.
func (a Applier) Drift(ctx context.Context, of schema.GroupVersionResource, live, object *unstructured.Unstructured) (fields [][]string, drift bool, err error) {
	options := metav1.ApplyOptions{FieldManager: catalog.Manager, Force: true, DryRun: []string{metav1.DryRunAll}}
	after, err := a.API.Resource(of).Namespace(object.GetNamespace()).Apply(ctx, object.GetName(), object, options)
	if err != nil {
		return nil, false, fmt.Errorf("dry run: %w", err)
	}
	fields = differences(reduced(live), reduced(after), nil)
	owned := reflect.DeepEqual(overrides.Fields(live, catalog.Manager), overrides.Fields(after, catalog.Manager))
	return fields, len(fields) > 0 || !owned, nil
}

// reduced is an object without its status, and of its metadata only what an apply can change.
func reduced(o *unstructured.Unstructured) map[string]any {
	part := make(map[string]any)
	for key, value := range o.Object {
		if key != "status" && key != "metadata" {
			part[key] = value
		}
	}
	metadata, _ := o.Object["metadata"].(map[string]any)
	kept := make(map[string]any)
	for _, key := range []string{"labels", "annotations"} {
		if value, has := metadata[key]; has {
			kept[key] = value
		}
	}
	part["metadata"] = kept
	return part
}

func differences(a, b any, at []string) (paths [][]string) {
	am, aIs := a.(map[string]any)
	bm, bIs := b.(map[string]any)
	if !aIs || !bIs {
		if reflect.DeepEqual(a, b) {
			return nil
		}
		return [][]string{at}
	}
	for key := range am {
		paths = append(paths, differences(am[key], bm[key], append(slices.Clone(at), key))...)
	}
	for key := range bm {
		if _, has := am[key]; !has {
			paths = append(paths, append(slices.Clone(at), key))
		}
	}
	slices.SortFunc(paths, slices.Compare)
	return paths
}

// Apply applies an object, by force. What handover has is first given to Released; nil: nothing.
func (a Applier) Apply(ctx context.Context, of schema.GroupVersionResource, live, object *unstructured.Unstructured, handover map[string]any) (*unstructured.Unstructured, error) {
	to := a.API.Resource(of).Namespace(object.GetNamespace())
	as := func(manager string, force bool, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		return to.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: manager, Force: force})
	}
	if handover != nil {
		// With what was handed over before: an apply deletes what its manager owned and it lacks. Not
		// by force: a value that has changed since is the user's already.
		if _, err := as(Released, false, withIdentity(live, overrides.Merge(overrides.All(live, Released), handover))); err != nil {
			return nil, fmt.Errorf("handing masked fields over: %w", err)
		}
	}
	after, err := as(catalog.Manager, true, object)
	if err != nil || live == nil || overrides.Fields(live, Released) == nil || live.GetAnnotations()[overrides.IgnoreAnnotation] != "" {
		return after, err
	}
	if _, err := as(Released, false, withIdentity(live, nil)); err != nil { // nothing is masked any more
		return nil, fmt.Errorf("taking masked fields back: %w", err)
	}
	return to.Get(ctx, object.GetName(), metav1.GetOptions{})
}

// withIdentity makes an object of fields that is applied only where the one that was read is.
func withIdentity(of *unstructured.Unstructured, fields map[string]any) *unstructured.Unstructured {
	o := (&unstructured.Unstructured{Object: fields}).DeepCopy()
	if o.Object == nil {
		o.Object = make(map[string]any)
	}
	o.SetGroupVersionKind(of.GroupVersionKind())
	o.SetNamespace(of.GetNamespace())
	o.SetName(of.GetName())
	o.SetUID(of.GetUID())
	return o
}

// Annotate sets one annotation of an object. With a resourceVersion it fails if the object has
// changed since.
func (a Applier) Annotate(ctx context.Context, of schema.GroupVersionResource, o *unstructured.Unstructured, key, value, resourceVersion string) (*unstructured.Unstructured, error) {
	metadata := map[string]any{"annotations": map[string]any{key: value}}
	if resourceVersion != "" {
		metadata["resourceVersion"] = resourceVersion
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return nil, err
	}
	return a.API.Resource(of).Namespace(o.GetNamespace()).Patch(ctx, o.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: pauser})
}

// Delete deletes an object as it was read: not another one of that name, nor one whose label has
// been taken away since.
func (a Applier) Delete(ctx context.Context, of schema.GroupVersionResource, o *unstructured.Unstructured) error {
	uid, version := o.GetUID(), o.GetResourceVersion()
	err := a.API.Resource(of).Namespace(o.GetNamespace()).Delete(ctx, o.GetName(), metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// NamespaceMissing reports whether a write failed as the object's namespace does not exist.
func NamespaceMissing(err error) bool {
	return apierrors.IsNotFound(err) && strings.Contains(err.Error(), `namespaces "`)
}
