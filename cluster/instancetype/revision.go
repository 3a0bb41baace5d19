package instancetype

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	instancetypev1 "github.com/vmlet/vmlet/api/instancetype/v1"
	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
)

// NewRevision returns the ControllerRevision that keeps an instancetype or preference for a VM as
// it is now. It is as KubeVirt writes and reads it, also in its version.
func NewRevision(vm *kubevirtv1.VirtualMachine, kind string, meta *metav1.ObjectMeta, spec any) (*appsv1.ControllerRevision, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(spec)
	if err != nil {
		return nil, err
	}
	// From maps, for the order of keys: the API server orders them, and the data may not change.
	kept := map[string]any{"name": meta.Name, "uid": meta.UID, "generation": meta.Generation}
	if meta.Namespace != "" {
		kept["namespace"] = meta.Namespace
	}
	data, err := json.Marshal(map[string]any{
		"apiVersion": instancetypev1.Group + "/" + instancetypev1.VersionBeta, "kind": kind, "metadata": kept, "spec": content,
	})
	if err != nil {
		return nil, err
	}
	generation := strconv.FormatInt(meta.Generation, 10)
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: vm.Namespace,
			Name:      revisionName(vm.Name, meta.Name, instancetypev1.VersionBeta, string(meta.UID), generation),
			Labels: map[string]string{
				contract.LabelCreatedBy:        string(vm.UID),
				contract.LabelObjectGeneration: generation, contract.LabelObjectKind: kind, contract.LabelObjectName: label(meta.Name),
				contract.LabelObjectUID: string(meta.UID), contract.LabelObjectVersion: instancetypev1.VersionBeta,
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, schema.GroupVersionKind{
				Group: kubevirtv1.Group, Version: kubevirtv1.Version, Kind: "VirtualMachine",
			})},
		},
		Data: runtime.RawExtension{Raw: data},
	}, nil
}

// revisionName is KubeVirt's, if that is not too long to be a name.
func revisionName(parts ...string) string {
	name := strings.Join(parts, "-")
	if len(name) <= validation.DNS1123SubdomainMaxLength {
		return name
	}
	const kept = 180
	return strings.TrimRight(name[:kept], "-.") + "-" + digest(name)
}

// label is a name as a label's value, which is shorter than names may be.
func label(name string) string {
	if len(name) <= validation.LabelValueMaxLength {
		return name
	}
	const kept = 40
	return strings.TrimRight(name[:kept], "-.") + "-" + digest(name)
}

func digest(text string) string {
	hash := sha256.Sum256([]byte(text))
	return hex.EncodeToString(hash[:8])
}

// ReadRevision reads what a ControllerRevision keeps into t, for one of a reference. Who names a
// revision himself may name any.
func (r Reference) ReadRevision(revision *appsv1.ControllerRevision, t *Types) error {
	var data struct {
		Kind string          `json:"kind"`
		Spec json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal(revision.Data.Raw, &data); err != nil {
		return fmt.Errorf("ControllerRevision %s keeps no %s: %w", revision.Name, r.What(), err)
	}
	if kind, known := r.kindNamed(data.Kind); !known || data.Kind == "" || kind != data.Kind {
		return fmt.Errorf("ControllerRevision %s keeps no %s, but an object of kind %.40q", revision.Name, r.What(), data.Kind)
	}
	var err error
	if r.Preference {
		t.Preference = &instancetypev1.VirtualMachinePreferenceSpec{}
		err = json.Unmarshal(data.Spec, t.Preference)
	} else {
		t.Instancetype = &instancetypev1.VirtualMachineInstancetypeSpec{}
		err = json.Unmarshal(data.Spec, t.Instancetype)
	}
	if err != nil {
		return fmt.Errorf("ControllerRevision %s can't be read: %w", revision.Name, err)
	}
	return nil
}
