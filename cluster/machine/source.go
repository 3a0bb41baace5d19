package machine

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/machine/action"
)

// templates make what a VM's dataVolumeTemplates describe.
type templates struct{ *Writer }

// resolve returns a template whose source is a claim or a snapshot, where it names an object
// that stands for one. Anyone who may make the VM must not read through it what its
// ServiceAccount may not: a source in another namespace has to be allowed to that.
func (t templates) resolve(ctx context.Context, vm *kubevirtv1.VirtualMachine, template *kubevirtv1.DataVolumeTemplateSpec) (*kubevirtv1.DataVolumeTemplateSpec, error) {
	template = template.DeepCopy()
	if ref := template.Spec.SourceRef; ref != nil {
		content, err := t.dataSource(ctx, vm, *ref)
		if err != nil {
			return nil, err
		}
		template.Spec.Source, template.Spec.SourceRef = content, nil
	}
	source := template.Spec.Source
	switch {
	case source == nil:
		return template, nil
	case source.PVC != nil:
		if err := t.authorize(ctx, vm, source.PVC); err != nil {
			return nil, err
		}
		return template, t.exists(ctx, source.PVC, vm.Namespace)
	case source.Snapshot != nil:
		return template, t.authorize(ctx, vm, source.Snapshot)
	}
	return template, nil
}

// dataSource returns the claim or snapshot that a DataSource stands for.
func (t templates) dataSource(ctx context.Context, vm *kubevirtv1.VirtualMachine, ref kubevirtv1.DataVolumeSourceRef) (*kubevirtv1.DataVolumeContent, error) {
	key := types.NamespacedName{Namespace: vm.Namespace, Name: ref.Name}
	if ref.Namespace != nil && *ref.Namespace != "" {
		key.Namespace = *ref.Namespace
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(cdi("DataSource"))
	if ref.Kind != u.GetKind() {
		return nil, refusal(reasonFailedDataVolumeCreate, "sourceRef.kind %q is not supported: name a DataSource", action.Clip(ref.Kind, 64))
	}
	there, err := get(ctx, t.Live, key, u)
	if err != nil {
		return nil, err
	}
	if !there {
		return nil, refusal(reasonSourceNotAvailable, "DataSource %s does not exist: make it, or name another in dataVolumeTemplates[].spec.sourceRef", key)
	}
	for _, part := range []string{"status", "spec"} { // status: where one stands for another
		pvc, snapshot := named(u, part, "pvc"), named(u, part, "snapshot")
		if pvc != nil || snapshot != nil {
			return &kubevirtv1.DataVolumeContent{PVC: pvc, Snapshot: snapshot}, nil
		}
	}
	return nil, refusal(reasonSourceNotAvailable, "DataSource %s has neither a claim nor a snapshot yet", key)
}

// named returns the object that a DataSource names as its source.
func named(u *unstructured.Unstructured, part, kind string) *kubevirtv1.DataVolumeObject {
	fields, there, _ := unstructured.NestedStringMap(u.Object, part, "source", kind)
	if !there || fields["name"] == "" {
		return nil
	}
	namespace := fields["namespace"]
	if namespace == "" {
		namespace = u.GetNamespace()
	}
	return &kubevirtv1.DataVolumeObject{Namespace: namespace, Name: fields["name"]}
}

// authorize asks whether the VM's ServiceAccount may read a source in another namespace.
func (t templates) authorize(ctx context.Context, vm *kubevirtv1.VirtualMachine, source *kubevirtv1.DataVolumeObject) error {
	if source.Namespace == "" || source.Namespace == vm.Namespace {
		return nil
	}
	account := vm.Spec.Template.Spec.ServiceAccountName
	if account == "" {
		account = "default"
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:   "system:serviceaccount:" + vm.Namespace + ":" + account,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + vm.Namespace, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: source.Namespace, Name: source.Name, Verb: "create",
			Group: cdi("").Group, Version: "*", Resource: "datavolumes", Subresource: "source",
		},
	}}
	if err := t.Client.Create(ctx, review); err != nil {
		return fmt.Errorf("ask whether %s may clone from namespace %s: %w", review.Spec.User, source.Namespace, err)
	}
	if !review.Status.Allowed {
		return refusal(reasonUnauthorizedDataVolume, "ServiceAccount %s/%s may not clone %s/%s: let it create datavolumes/source in namespace %s",
			vm.Namespace, account, source.Namespace, source.Name, source.Namespace)
	}
	return nil
}

// exists checks that a claim is there to be cloned.
func (t templates) exists(ctx context.Context, source *kubevirtv1.DataVolumeObject, namespace string) error {
	key := types.NamespacedName{Namespace: source.Namespace, Name: source.Name}
	if key.Namespace == "" {
		key.Namespace = namespace
	}
	there, err := get(ctx, t.Live, key, &corev1.PersistentVolumeClaim{})
	if err == nil && !there {
		err = refusal(reasonSourceNotAvailable, "claim %s does not exist, which dataVolumeTemplates has as a source: make it, or name another", key)
	}
	return err
}
