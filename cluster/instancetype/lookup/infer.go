package lookup

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instancetype"
	"github.com/vmlet/vmlet/contract"
)

// Infer sets the matchers of a VM that name a volume to what the volume's labels name. One that
// names nothing is a fault, or, if the matcher says Ignore, takes the matcher away. The error says
// that it is unknown.
func Infer(ctx context.Context, from client.Reader, vm *kubevirtv1.VirtualMachine) (faults field.ErrorList, _ error) {
	if vm.Spec.Template == nil {
		return nil, nil
	}
	for _, r := range instancetype.References(vm) {
		if r.Matcher.InferFromVolume == "" || len(r.Faults()) > 0 {
			continue // validation says what is wrong
		}
		found, err := inferring{ctx, from, vm, r.Preference}.volume(r.Matcher.InferFromVolume)
		policy := r.Matcher.InferFromVolumeFailurePolicy
		ignore := policy != nil && *policy == kubevirtv1.InferFromVolumeIgnore
		var nothing nameless
		switch {
		case errors.As(err, &nothing) && ignore:
			found = nil
		case errors.As(err, &nothing), apierrors.IsNotFound(err):
			faults = append(faults, field.Invalid(r.Path().Child("inferFromVolume"), r.Matcher.InferFromVolume, err.Error()))
			continue
		case err != nil:
			return nil, err
		}
		set(vm, r.Preference, found)
		if found != nil && ignore && !r.Preference {
			// virtctl writes it for the case that there is no instancetype.
			vm.Spec.Template.Spec.Domain.Memory = nil
		}
	}
	return faults, nil
}

func set(vm *kubevirtv1.VirtualMachine, preference bool, found *kubevirtv1.InstancetypeMatcher) {
	if preference {
		vm.Spec.Preference = (*kubevirtv1.PreferenceMatcher)(found)
	} else {
		vm.Spec.Instancetype = found
	}
}

// nameless says why a volume names nothing, which a failure policy may let pass.
type nameless struct{ why string }

func (n nameless) Error() string { return n.why }

// inferring follows a volume of a VM to labels.
type inferring struct {
	ctx        context.Context
	from       client.Reader
	vm         *kubevirtv1.VirtualMachine
	preference bool
}

// matcher is a function's result: what was found.
type matcher = *kubevirtv1.InstancetypeMatcher

func (i inferring) volume(name string) (matcher, error) {
	for _, v := range i.vm.Spec.Template.Spec.Volumes {
		switch {
		case v.Name != name:
			continue
		case v.PersistentVolumeClaim != nil:
			return i.object("PersistentVolumeClaim", v.PersistentVolumeClaim.ClaimName, i.vm.Namespace)
		case v.DataVolume != nil:
			return i.dataVolume(v.DataVolume.Name)
		}
		return nil, nameless{"the volume is neither a persistentVolumeClaim nor a dataVolume, which have labels: set the name"}
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "volumes of spec.template.spec"}, name)
}

// labels returns what labels name.
func (i inferring) labels(what string, all map[string]string) (matcher, error) {
	name, kind := contract.LabelDefaultInstancetype, contract.LabelDefaultInstancetypeKind
	if i.preference {
		name, kind = contract.LabelDefaultPreference, contract.LabelDefaultPreferenceKind
	}
	if all[name] == "" {
		return nil, nameless{fmt.Sprintf("%s has no label %s: set the name, or the label", what, name)}
	}
	return &kubevirtv1.InstancetypeMatcher{Name: all[name], Kind: all[kind]}, nil
}

func kindOf(kind string) schema.GroupVersionKind {
	switch kind {
	case "VolumeSnapshot":
		return schema.GroupVersionKind{Group: "snapshot.storage.k8s.io", Version: "v1", Kind: kind}
	case "DataVolume", "DataSource":
		return schema.GroupVersionKind{Group: "cdi.kubevirt.io", Version: "v1beta1", Kind: kind}
	}
	return schema.GroupVersionKind{Version: "v1", Kind: kind}
}

// get reads an object. One of a kind that the cluster has not is not found.
func (i inferring) get(o client.Object, kind, name, namespace string) error {
	o.GetObjectKind().SetGroupVersionKind(kindOf(kind))
	err := i.from.Get(i.ctx, client.ObjectKey{Namespace: namespace, Name: name}, o)
	if meta.IsNoMatchError(err) {
		return apierrors.NewNotFound(schema.GroupResource{Group: kindOf(kind).Group, Resource: kind}, name)
	}
	return err
}

// object returns what the labels of an object name.
func (i inferring) object(kind, name, namespace string) (matcher, error) {
	o := &metav1.PartialObjectMetadata{}
	if err := i.get(o, kind, name, namespace); err != nil {
		return nil, err
	}
	return i.labels(fmt.Sprintf("%s %s/%s", kind, namespace, name), o.Labels)
}

// dataVolume returns what a DataVolume of the VM's namespace names, or what it is made from. Where
// it is gone, as its claim is filled, the claim counts.
func (i inferring) dataVolume(name string) (matcher, error) {
	for _, t := range i.vm.Spec.DataVolumeTemplates {
		if t.Name == name {
			if found, err := i.labels("DataVolume "+name, t.Labels); err == nil {
				return found, nil
			}
			return i.source(t.Spec)
		}
	}
	u := &unstructured.Unstructured{}
	err := i.get(u, "DataVolume", name, i.vm.Namespace)
	if apierrors.IsNotFound(err) {
		return i.object("PersistentVolumeClaim", name, i.vm.Namespace)
	}
	if err != nil {
		return nil, err
	}
	if found, err := i.labels("DataVolume "+name, u.GetLabels()); err == nil {
		return found, nil
	}
	var dv struct {
		Spec kubevirtv1.DataVolumeSpec `json:"spec"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &dv); err != nil {
		return nil, fmt.Errorf("DataVolume %s/%s: %w", i.vm.Namespace, name, err)
	}
	return i.source(dv.Spec)
}

// source returns what that names from which a DataVolume is made.
func (i inferring) source(d kubevirtv1.DataVolumeSpec) (matcher, error) {
	switch {
	case d.Source != nil && d.Source.PVC != nil:
		return i.object("PersistentVolumeClaim", d.Source.PVC.Name, i.here(d.Source.PVC.Namespace))
	case d.Source != nil && d.Source.Snapshot != nil:
		return i.object("VolumeSnapshot", d.Source.Snapshot.Name, i.here(d.Source.Snapshot.Namespace))
	case d.SourceRef != nil && d.SourceRef.Kind == "DataSource":
		namespace := ""
		if d.SourceRef.Namespace != nil {
			namespace = *d.SourceRef.Namespace
		}
		return i.dataSource(d.SourceRef.Name, i.here(namespace))
	}
	return nil, nameless{"the DataVolume is made neither from a claim or snapshot nor from a DataSource, which have labels: set the name"}
}

func (i inferring) here(namespace string) string {
	if namespace == "" {
		return i.vm.Namespace
	}
	return namespace
}

func (i inferring) dataSource(name, namespace string) (matcher, error) {
	u := &unstructured.Unstructured{}
	if err := i.get(u, "DataSource", name, namespace); err != nil {
		return nil, err
	}
	found, none := i.labels(fmt.Sprintf("DataSource %s/%s", namespace, name), u.GetLabels())
	if none == nil {
		return found, nil
	}
	for part, kind := range map[string]string{"pvc": "PersistentVolumeClaim", "snapshot": "VolumeSnapshot"} {
		of, there, _ := unstructured.NestedStringMap(u.Object, "spec", "source", part)
		if there {
			return i.object(kind, of["name"], i.here(of["namespace"]))
		}
	}
	return nil, none
}
