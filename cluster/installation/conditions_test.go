package installation

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	accessors "k8s.io/apiserver/pkg/admission/plugin/webhook"
	"k8s.io/apiserver/pkg/cel/environment"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// TestConditions: which requests the API server sends to webhooks, by its own evaluation of their
// conditions. One that can't be evaluated would refuse the request.
func TestConditions(t *testing.T) {
	here := server{namespace: "elsewhere", service: PluginName}
	own := validators(here, validating()[:1], nil)[0]
	plugin := validators(here, ofPlugin([]kubevirtv1.PluginWebhookSpecification{{Name: "any", RestServicePath: "/any"}}), nil)[0]
	object := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "any"}}}
	object.SetAPIVersion(kubevirtv1.Group + "/" + kubevirtv1.Version)
	object.SetKind("Any")
	deleted := object.DeepCopy()
	deleted.SetDeletionTimestamp(new(metav1.Now()))
	for name, c := range map[string]struct {
		resource    string
		operation   admission.Operation
		object, old runtime.Object
		own, plugin bool // whether they are called
	}{
		"a VM is made":                  {"virtualmachines", admission.Create, object, nil, true, true},
		"a VM is made as one that goes": {"virtualmachines", admission.Create, deleted, nil, true, true},
		"a VM is changed":               {"virtualmachines", admission.Update, object, object, true, true},
		"a VM loses its last finalizer": {"virtualmachines", admission.Update, deleted, deleted, false, false},
		"a VM is deleted":               {"virtualmachines", admission.Delete, nil, object, true, true},
		"the configuration is changed":  {"kubevirts", admission.Update, object, object, true, false},
		"the configuration is deleted":  {"kubevirts", admission.Delete, nil, object, true, false},
	} {
		version := schema.GroupVersion{Group: kubevirtv1.Group, Version: kubevirtv1.Version}
		request := admission.NewAttributesRecord(c.object, c.old, version.WithKind("Any"), "space", "any",
			version.WithResource(c.resource), "", c.operation, nil, false, nil)
		for _, w := range []struct {
			admissionv1.ValidatingWebhook
			called bool
		}{{own, c.own}, {plugin, c.plugin}} {
			got, err := called(t, w.ValidatingWebhook, request)
			if err != nil || got != w.called {
				t.Errorf("%s: %s is called: %v (%v), want %v", name, w.Name, got, err, w.called)
			}
		}
	}
}

func called(t *testing.T, w admissionv1.ValidatingWebhook, request admission.Attributes) (bool, error) {
	t.Helper()
	compiler := cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	versioned, err := admission.NewVersionedAttributes(request, request.GetKind(), admission.NewObjectInterfacesFromScheme(runtime.NewScheme()))
	if err != nil {
		t.Fatal(err)
	}
	result := accessors.NewValidatingWebhookAccessor("", "", &w).GetCompiledMatcher(compiler).Match(t.Context(), versioned, nil, nil)
	return result.Matches, result.Error
}
