package installation

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
)

// definitions are vmlet's, with other labels on one of them.
func definitions(changed string, labels map[string]string) (all []client.Object) {
	for _, name := range kinds() {
		d := Definition()
		d.Name, d.Labels = name, map[string]string{contract.LabelDefinition: ""}
		if name == changed+"."+kubevirtv1.Group {
			d.Labels = labels
		}
		all = append(all, d)
	}
	return all
}

func apiService(version, namespace, name string) client.Object {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": version + ".subresources.kubevirt.io"},
		"spec": map[string]any{"service": map[string]any{"namespace": namespace, "name": name}},
	}}
	return o
}

func TestForeign(t *testing.T) {
	const virtOperator = "app.kubernetes.io/managed-by"
	for name, c := range map[string]struct {
		objects []client.Object
		want    []string // in the message; none: the kinds are vmlet's
	}{
		"vmlet's":              {definitions("", nil), nil},
		"vmlet's, with an API": {append(definitions("", nil), apiService("v1", "vmlet", "vmlet-api")), nil},
		"no definition": {definitions("", nil)[1:], []string{
			"CustomResourceDefinition virtualmachines.kubevirt.io does not exist", "kubectl apply --server-side -k deploy/crd"}},
		"no label": {definitions("kubevirts", nil), []string{
			"kubevirts.kubevirt.io belongs to another controller", "no label vmlet.io/definition", "docs/from-kubevirt.md"}},
		"another's label": {definitions("virtualmachines", map[string]string{partOf: vmlet}), []string{
			"virtualmachines.kubevirt.io belongs to another controller"}},
		"a user's other label": {definitions("virtualmachines", map[string]string{contract.LabelDefinition: "", partOf: "platform"}), nil},
		"KubeVirt's": {definitions("virtualmachines", map[string]string{virtOperator: "virt-operator", "kubevirt.io": ""}), []string{
			"virtualmachines.kubevirt.io belongs to KubeVirt", virtOperator + "=virt-operator"}},
		"vmlet's over KubeVirt's": {definitions("virtualmachineinstances", map[string]string{contract.LabelDefinition: "", "kubevirt.io": ""}), []string{
			"virtualmachineinstances.kubevirt.io belongs to KubeVirt", "kubevirt.io="}},
		"vmlet's over KubeVirt's operator's": {definitions("kubevirts", map[string]string{contract.LabelDefinition: "", "operator.kubevirt.io": ""}), []string{
			"kubevirts.kubevirt.io belongs to KubeVirt"}},
		"vmlet's by another tool": {definitions("kubevirts", map[string]string{contract.LabelDefinition: "", virtOperator: "Helm"}), nil},
		"KubeVirt's API": {append(definitions("", nil), apiService("v1alpha3", "kubevirt", "virt-api")), []string{
			"APIService v1alpha3.subresources.kubevirt.io", "kubevirt/virt-api", "vmlet/vmlet-api", "docs/from-kubevirt.md"}},
		"another namespace's API": {append(definitions("", nil), apiService("v1", "other", "vmlet-api")), []string{"other/vmlet-api"}},
	} {
		got, err := Foreign(t.Context(), newClient(t, interceptor.Funcs{}, c.objects...), "vmlet", "vmlet-api")
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if (got != "") != (len(c.want) > 0) {
			t.Errorf("%s: the answer is %q, want one: %v", name, got, len(c.want) > 0)
		}
		for _, w := range c.want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: the answer is %q, want %q in it", name, got, w)
			}
		}
	}
}

// TestAwait: an API server that is away is waited for; another's kinds are not.
func TestAwait(t *testing.T) { synctest.Test(t, testAwait) }

func testAwait(t *testing.T) {
	asked := 0
	away := interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if asked++; asked == 1 {
			return errors.New("connection refused")
		}
		return c.Get(ctx, key, o, opts...)
	}}
	quiet := slog.New(slog.DiscardHandler)
	if err := Await(t.Context(), newClient(t, away, definitions("", nil)...), "vmlet", "vmlet-api", quiet); err != nil {
		t.Errorf("an API server that was away at first: %v", err)
	}
	err := Await(t.Context(), newClient(t, interceptor.Funcs{}, definitions("kubevirts", nil)...), "vmlet", "vmlet-api", quiet)
	if err == nil || !strings.Contains(err.Error(), "belongs to another controller") {
		t.Errorf("another's kinds: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	down := interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return errors.New("connection refused")
	}}
	if err := Await(ctx, newClient(t, down), "vmlet", "vmlet-api", quiet); !errors.Is(err, context.Canceled) {
		t.Errorf("a program that is ended while it waits: %v, want %v", err, context.Canceled)
	}
}
