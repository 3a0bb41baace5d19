package installation

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// PluginParts are the objects that a virtualisation stack's webhooks consist of beside their Deployment.
// They are followed by name, as the rights to them are given, without what is in the Secret. They need a
// cache of their own: one has a single selector for all webhook configurations, and that can't name two.
func PluginParts(namespace string) map[client.Object]cache.ByObject {
	named := func(name string, namespaces map[string]cache.Config) cache.ByObject {
		return cache.ByObject{Field: fields.OneTermEqualSelector(metav1.ObjectNameField, name), Namespaces: namespaces}
	}
	hooks, here := named(PluginConfigurationName, nil), named(PluginName, map[string]cache.Config{namespace: {}})
	all := make(map[client.Object]cache.ByObject)
	for kind, of := range map[schema.GroupVersionKind]cache.ByObject{
		admissionv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration"):   hooks,
		admissionv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration"): hooks,
		corev1.SchemeGroupVersion.WithKind("Service"):                             here,
		corev1.SchemeGroupVersion.WithKind("Secret"):                              here,
	} {
		part := &metav1.PartialObjectMetadata{}
		part.SetGroupVersionKind(kind)
		all[part] = of
	}
	return all
}

// parts are what a change of PluginParts comes from.
func (i *Installation) parts(then handler.EventHandler) (all []source.Source) {
	for part := range PluginParts(i.Namespace) {
		all = append(all, source.Kind(i.Parts, part, then))
	}
	return all
}
