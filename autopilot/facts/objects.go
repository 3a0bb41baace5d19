package facts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// Objects are a cluster's, from files. It is a Reader.
type Objects struct {
	All   []*unstructured.Unstructured
	kinds Kinds
}

// Parse reads the documents of a file.
func Parse(text []byte) (*Objects, error) {
	o := &Objects{}
	var faults []error
	for i, document := range bytes.Split(append([]byte("\n"), text...), []byte("\n---")) {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &object.Object); err != nil {
			faults = append(faults, fmt.Errorf("document %d: %w", i, err))
			continue
		}
		if len(object.Object) == 0 {
			continue
		}
		if object.GetKind() == "" || object.GetAPIVersion() == "" || object.GetName() == "" {
			faults = append(faults, fmt.Errorf("document %d is no object with apiVersion, kind and metadata.name", i))
			continue
		}
		faults = append(faults, unquoted(i, object)...)
		if _, has := object.Object["status"]; object.GroupVersionKind().Group == CRDs().Group && !has {
			// A manifest: what counts is that it would be there.
			object.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}}
		}
		o.All = append(o.All, object)
	}
	definitions, err := o.List(context.Background(), CRDs(), "")
	if o.kinds = KindsOf(definitions); len(definitions) == 0 {
		o.kinds = AllKinds()
	}
	return o, errors.Join(append(faults, err)...)
}

// unquoted finds annotations that YAML takes for something else than text, which the API server refuses.
func unquoted(document int, o *unstructured.Unstructured) (faults []error) {
	annotations, _, _ := unstructured.NestedMap(o.Object, "metadata", "annotations")
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if _, is := annotations[key].(string); !is {
			faults = append(faults, fmt.Errorf("document %d: metadata.annotations: %.80s is no text: put its value into quotes", document, key))
		}
	}
	return faults
}

// Facts are those of the objects, which an administrator names: all control the autopilot, whatever their
// namespace. Without a CustomResourceDefinition among them all kinds count as
// served, and without a Namespace all namespaces as there.
func (o *Objects) Facts(ctx context.Context, namespace string) (Facts, error) {
	f, err := gather(ctx, o, namespace, "", o.kinds)
	if len(f.Namespaces) == 0 {
		f.Namespaces = nil
	}
	return f, err
}

// Get returns the object of that name.
func (o *Objects) Get(ctx context.Context, of schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	all, err := o.List(ctx, of, namespace)
	for _, object := range all {
		if object.GetName() == name {
			return object, err
		}
	}
	return nil, err
}

// List returns those of a kind, whatever its version.
func (o *Objects) List(_ context.Context, of schema.GroupVersionResource, namespace string) (all []*unstructured.Unstructured, _ error) {
	for _, object := range o.All {
		if o.kinds.Resource(object.GroupVersionKind()).GroupResource() == of.GroupResource() && (namespace == "" || object.GetNamespace() == namespace) {
			all = append(all, object.DeepCopy())
		}
	}
	return all, nil
}
