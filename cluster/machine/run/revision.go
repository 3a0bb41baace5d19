package run

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
)

// MachineKind is the kind of VMs, in owner references.
const MachineKind = "VirtualMachine"

// OwnedBy is the owner reference of what a VM controls.
func OwnedBy(vm *kubevirtv1.VirtualMachine) metav1.OwnerReference {
	return *metav1.NewControllerRef(vm, schema.GroupVersionKind{Group: kubevirtv1.Group, Version: kubevirtv1.Version, Kind: MachineKind})
}

// Generation returns the VM's generation that an instance was made from; 0 if it does not
// say.
func Generation(instance *kubevirtv1.VirtualMachineInstance) int64 {
	generation, err := strconv.ParseInt(instance.Annotations[contract.AnnotationVMGeneration], 10, 64)
	if err != nil {
		return 0
	}
	return generation
}

// RevisionName is that of the ControllerRevision of one generation of a VM.
func RevisionName(vm types.UID, generation int64) string {
	return fmt.Sprintf("%s%s-%d", contract.RevisionPrefix, vm, generation)
}

// GenerationIn is the VM's generation that a ControllerRevision has, by its name; 0: it does not
// say.
func GenerationIn(revision string) int64 {
	generation, err := strconv.ParseInt(revision[strings.LastIndex(revision, "-")+1:], 10, 64)
	if err != nil {
		return 0
	}
	return generation
}

// NewRevision returns the ControllerRevision of the VM's present generation, with what its
// instancetype and preference say in the template.
func NewRevision(vm *kubevirtv1.VirtualMachine) (*appsv1.ControllerRevision, error) {
	spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&vm.Spec)
	if err != nil {
		return nil, err
	}
	// From a map, for the order of its keys: the API server puts them in order whenever
	// anything of the object changes, and the data may not.
	data, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return nil, err
	}
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       vm.Namespace,
			Name:            RevisionName(vm.UID, vm.Generation),
			Labels:          map[string]string{contract.LabelCreatedBy: string(vm.UID)},
			OwnerReferences: []metav1.OwnerReference{OwnedBy(vm)},
		},
		Data:     runtime.RawExtension{Raw: data},
		Revision: vm.Generation,
	}, nil
}

// revisionData is what a ControllerRevision keeps of a VM.
type revisionData struct {
	Spec kubevirtv1.VirtualMachineSpec `json:"spec"`
}

// ReadRevision returns the spec that a ControllerRevision keeps, if it is the VM's and can be
// read.
func ReadRevision(revision *appsv1.ControllerRevision, vm *kubevirtv1.VirtualMachine) *kubevirtv1.VirtualMachineSpec {
	var data revisionData
	if !metav1.IsControlledBy(revision, vm) || json.Unmarshal(revision.Data.Raw, &data) != nil || data.Spec.Template == nil {
		return nil
	}
	return &data.Spec
}

// Run is an instance that is about to be made, with the ControllerRevision that keeps what it is made from.
type Run struct {
	Instance *kubevirtv1.VirtualMachineInstance
	Revision *appsv1.ControllerRevision
}

// New returns the run that the VM is to be started with now.
func New(vm *kubevirtv1.VirtualMachine, paused bool) (*Run, error) {
	revision, err := NewRevision(vm)
	if err != nil {
		return nil, err
	}
	return &Run{Instance: NewInstance(vm, paused), Revision: revision}, nil
}
