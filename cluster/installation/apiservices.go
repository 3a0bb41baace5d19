package installation

import (
	"context"
	"encoding/base64"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

const (
	// subresourcesPort is that of vmlet-api's Service at which the aggregated API is.
	subresourcesPort = 8443
	// groupPriority and versionPriority are KubeVirt's.
	groupPriority, versionPriority = 1000, 15
)

// versions are those of the aggregated API.
func versions() []string { return []string{"v1", "v1alpha3"} }

func apiServiceNames() (all []string) {
	for _, v := range versions() {
		all = append(all, v+".subresources."+kubevirtv1.Group)
	}
	return all
}

func apiServiceKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"}
}

// APIService is an APIService as far as it is followed: without its spec.
func APIService() *metav1.PartialObjectMetadata {
	s := &metav1.PartialObjectMetadata{}
	s.SetGroupVersionKind(apiServiceKind())
	return s
}

// Own selects vmlet's own objects by their label.
func Own() labels.Selector { return labels.SelectorFromSet(labels.Set{partOf: vmlet}) }

// announce has the API server pass requests on to vmlet-api, once a replica of that can be
// reached, and no longer than that: an API that nobody serves breaks discovery, and with it
// the deletion of every namespace.
func (i *Installation) announce(ctx context.Context, owner *corev1.Namespace) error {
	served, err := i.served(ctx)
	if err != nil {
		return err
	}
	if !served {
		return i.deleteAPIServices(ctx)
	}
	roots, err := i.Roots(ctx)
	if err != nil {
		return err
	}
	for n, name := range apiServiceNames() {
		if err := i.applyAPIService(ctx, owner, name, i.apiServiceSpec(versions()[n], roots)); err != nil {
			return err
		}
	}
	return nil
}

// served reports whether a replica of vmlet-api is available.
func (i *Installation) served(ctx context.Context) (bool, error) {
	api := &appsv1.Deployment{}
	err := i.Client.Get(ctx, client.ObjectKey{Namespace: i.Namespace, Name: i.Names.API}, api)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return api.DeletionTimestamp == nil && api.Status.AvailableReplicas > 0, nil
}

func (i *Installation) apiServiceSpec(version string, roots []byte) map[string]any {
	return map[string]any{
		"group": "subresources." + kubevirtv1.Group, "version": version,
		"groupPriorityMinimum": int64(groupPriority), "versionPriority": int64(versionPriority),
		"service":  map[string]any{"namespace": i.Namespace, "name": i.Names.API, "port": int64(subresourcesPort)},
		"caBundle": base64.StdEncoding.EncodeToString(roots),
	}
}

// applyAPIService writes an APIService unless it is as it should be.
func (i *Installation) applyAPIService(ctx context.Context, owner *corev1.Namespace, name string, spec map[string]any) error {
	s := &unstructured.Unstructured{}
	s.SetGroupVersionKind(apiServiceKind())
	err := i.Live.Get(ctx, client.ObjectKey{Name: name}, s)
	absent := apierrors.IsNotFound(err)
	if err != nil && !absent {
		return err
	}
	to := s.DeepCopy()
	to.SetName(name)
	own := maps.Clone(to.GetLabels())
	if own == nil {
		own = make(map[string]string)
	}
	own[partOf] = vmlet
	to.SetLabels(own)
	to.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: owner.Name, UID: owner.UID}})
	to.Object["spec"] = spec
	switch {
	case absent:
		err = i.Client.Create(ctx, to)
	case apiequality.Semantic.DeepEqual(s.Object, to.Object):
		return nil
	default:
		err = i.Client.Update(ctx, to)
	}
	if err == nil {
		i.Log.Info("APIService written", "name", name)
	}
	return err
}

// deleteAPIServices deletes those that lead to vmlet-api. Another's of that name stay.
func (i *Installation) deleteAPIServices(ctx context.Context) error {
	for _, name := range apiServiceNames() {
		s := APIService()
		err := i.Live.Get(ctx, client.ObjectKey{Name: name}, s)
		if apierrors.IsNotFound(err) || err == nil && !slices.ContainsFunc(s.OwnerReferences, func(r metav1.OwnerReference) bool { return r.Name == i.Namespace }) {
			continue
		}
		if err != nil {
			return err
		}
		switch err := i.Client.Delete(ctx, s, client.Preconditions{UID: &s.UID}); {
		case err == nil:
			i.Log.Info("APIService deleted", "name", name)
		case !apierrors.IsNotFound(err):
			return err
		}
	}
	return nil
}
