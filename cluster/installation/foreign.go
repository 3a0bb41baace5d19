package installation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	instancetypev1 "github.com/vmlet/vmlet/api/instancetype/v1"
	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	poolv1 "github.com/vmlet/vmlet/api/pool/v1beta1"
	"github.com/vmlet/vmlet/contract"
)

// partOf is the label that vmlet's own objects have.
const partOf, vmlet = "app.kubernetes.io/part-of", "vmlet"

// kinds are the definitions that have to be vmlet's.
func kinds() []string {
	all := []string{"virtualmachines." + kubevirtv1.Group, "virtualmachineinstances." + kubevirtv1.Group, "virtualmachineinstancereplicasets." + kubevirtv1.Group, "kubevirts." + kubevirtv1.Group}
	for _, kind := range []string{
		instancetypev1.KindInstancetype, instancetypev1.KindClusterInstancetype, instancetypev1.KindPreference, instancetypev1.KindClusterPreference,
	} {
		all = append(all, strings.ToLower(kind)+"s."+instancetypev1.Group)
	}
	return append(all, strings.ToLower(poolv1.Kind)+"s."+poolv1.Group)
}

// marksOfKubeVirt are labels that KubeVirt gives its definitions; the second is a label's value,
// or empty for any. They stay where vmlet's definitions are applied over KubeVirt's.
func marksOfKubeVirt() [][2]string {
	return [][2]string{{"app.kubernetes.io/managed-by", "virt-operator"}, {contract.LabelApp, ""}, {"operator.kubevirt.io", ""}}
}

// wayOver is where moving from KubeVirt to vmlet is described.
const wayOver = "docs/from-kubevirt.md says how to move from there to vmlet"

// askAgain is how long an API server that does not answer is left alone.
const askAgain = 2 * time.Second

// Await waits until the API server has said that kubevirt.io belongs to vmlet. It returns an
// error where it belongs to another controller, or when ctx ends.
func Await(ctx context.Context, from client.Reader, namespace, service string, log *slog.Logger) error {
	said := ""
	return wait.PollUntilContextCancel(ctx, askAgain, true, func(ctx context.Context) (bool, error) {
		why, err := Foreign(ctx, from, namespace, service)
		switch {
		case err != nil && err.Error() != said:
			said = err.Error()
			log.Warn("the owner of kubevirt.io is unknown; nothing starts before it is known", "error", err)
		case why != "":
			return false, errors.New(why)
		}
		return err == nil, nil
	})
}

// Foreign says which other controller the kinds of kubevirt.io belong to, and what to do;
// empty: they are vmlet's. Two controllers of one VM would run it twice. The service is
// vmlet-api's, in vmlet's namespace.
func Foreign(ctx context.Context, from client.Reader, namespace, service string) (string, error) {
	for _, name := range kinds() {
		if why, err := foreignKind(ctx, from, name); why != "" || err != nil {
			return why, err
		}
	}
	return foreignAPI(ctx, from, namespace, service)
}

// Definition is a CustomResourceDefinition as far as it is read here: without its spec.
func Definition() *metav1.PartialObjectMetadata {
	d := &metav1.PartialObjectMetadata{}
	d.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	return d
}

func foreignKind(ctx context.Context, from client.Reader, name string) (string, error) {
	crd := Definition()
	err := from.Get(ctx, client.ObjectKey{Name: name}, crd)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("CustomResourceDefinition %s does not exist: kubectl apply --server-side -k deploy/crd", name), nil
	case err != nil:
		return "", err
	}
	for _, mark := range marksOfKubeVirt() {
		if value, has := crd.Labels[mark[0]]; has && (mark[1] == "" || value == mark[1]) {
			return fmt.Sprintf("CustomResourceDefinition %s belongs to KubeVirt, as its label %s=%s says, and vmlet does not run beside it: %s",
				name, mark[0], value, wayOver), nil
		}
	}
	if _, has := crd.Labels[contract.LabelDefinition]; !has {
		return fmt.Sprintf("CustomResourceDefinition %s belongs to another controller: it has no label %s; %s",
			name, contract.LabelDefinition, wayOver), nil
	}
	return "", nil
}

// foreignAPI looks at who serves the aggregated API that virtctl calls.
func foreignAPI(ctx context.Context, from client.Reader, namespace, service string) (string, error) {
	for _, name := range apiServiceNames() {
		api := &unstructured.Unstructured{}
		api.SetGroupVersionKind(apiServiceKind())
		err := from.Get(ctx, client.ObjectKey{Name: name}, api)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return "", err
		}
		backend, _, _ := unstructured.NestedString(api.Object, "spec", "service", "name")
		in, _, _ := unstructured.NestedString(api.Object, "spec", "service", "namespace")
		if backend != service || in != namespace {
			return fmt.Sprintf("APIService %s is served by the Service %s/%s, not by vmlet's %s/%s: %s", name, in, backend, namespace, service, wayOver), nil
		}
	}
	return "", nil
}
