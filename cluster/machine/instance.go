package machine

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"

	"github.com/google/uuid"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/instancetype"
	"github.com/vmlet/vmlet/contract"
)

// newInstance returns the instance that the VM is to be started with now.
func newInstance(vm *kubevirtv1.VirtualMachine, paused bool) *kubevirtv1.VirtualMachineInstance {
	template := vm.Spec.Template
	instance := &kubevirtv1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       vm.Namespace,
			Name:            vm.Name,
			Labels:          maps.Clone(template.Labels),
			Annotations:     with(template.Annotations, contract.AnnotationVMGeneration, strconv.FormatInt(vm.Generation, 10)),
			OwnerReferences: []metav1.OwnerReference{ownedBy(vm)},
			Finalizers:      []string{contract.FinalizerMachine, contract.FinalizerInstance},
		},
		Spec: *template.Spec.DeepCopy(),
	}
	maps.Copy(instance.Annotations, instancetype.Annotations(vm))
	identify(&instance.Spec.Domain, vm.Name)
	if paused {
		strategy := kubevirtv1.StartPaused
		instance.Spec.StartStrategy = &strategy
	}
	return instance
}

// machineKind is the kind of VMs, in owner references.
const machineKind = "VirtualMachine"

func ownedBy(vm *kubevirtv1.VirtualMachine) metav1.OwnerReference {
	return *metav1.NewControllerRef(vm, schema.GroupVersionKind{Group: kubevirtv1.Group, Version: kubevirtv1.Version, Kind: machineKind})
}

// identify gives a guest that has none the UUID that KubeVirt would, and a serial number. It
// returns whether it did. Both follow from the VM's name: whoever fills them in, and however
// often, the guest has the same.
func identify(domain *kubevirtv1.DomainSpec, name string) (changed bool) {
	space := uuid.UUID{0x6a, 0x1a, 0x24, 0xa1, 0x40, 0x61, 0x46, 0x07, 0x8b, 0xf4, 0xa3, 0x96, 0x3d, 0x0c, 0x58, 0x95}
	if domain.Firmware == nil {
		domain.Firmware = &kubevirtv1.Firmware{}
	}
	if domain.Firmware.UUID == "" {
		domain.Firmware.UUID = types.UID(uuid.NewSHA1(space, []byte(name)).String())
		changed = true
	}
	if domain.Firmware.Serial == "" {
		domain.Firmware.Serial = uuid.NewSHA1(space, []byte("serial of "+name)).String()
		changed = true
	}
	return changed
}

// generationOf returns the VM's generation that an instance was made from; 0 if it does not
// say.
func generationOf(instance *kubevirtv1.VirtualMachineInstance) int64 {
	generation, err := strconv.ParseInt(instance.Annotations[contract.AnnotationVMGeneration], 10, 64)
	if err != nil {
		return 0
	}
	return generation
}

// revisionName is that of the ControllerRevision of one generation of a VM.
func revisionName(vm types.UID, generation int64) string {
	return fmt.Sprintf("%s%s-%d", contract.RevisionPrefix, vm, generation)
}

// revisionData is what a ControllerRevision keeps of a VM.
type revisionData struct {
	Spec kubevirtv1.VirtualMachineSpec `json:"spec"`
}

// newRevision returns the ControllerRevision of the VM's present generation, with what its
// instancetype and preference say in the template.
func newRevision(vm *kubevirtv1.VirtualMachine) (*appsv1.ControllerRevision, error) {
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
			Name:            revisionName(vm.UID, vm.Generation),
			Labels:          map[string]string{contract.LabelCreatedBy: string(vm.UID)},
			OwnerReferences: []metav1.OwnerReference{ownedBy(vm)},
		},
		Data:     runtime.RawExtension{Raw: data},
		Revision: vm.Generation,
	}, nil
}

// readRevision returns the spec that a ControllerRevision keeps, if it is the VM's and can be
// read.
func readRevision(revision *appsv1.ControllerRevision, vm *kubevirtv1.VirtualMachine) *kubevirtv1.VirtualMachineSpec {
	var data revisionData
	if !metav1.IsControlledBy(revision, vm) || json.Unmarshal(revision.Data.Raw, &data) != nil || data.Spec.Template == nil {
		return nil
	}
	return &data.Spec
}

// restartChanges returns the fields of the VM that a restart would change in its instance:
// those of the instance that the VM had when it was started against those of the one that it
// would be started with now, with the same defaults in both.
func restartChanges(o observed) []string {
	if o.started == nil || o.vm.Spec.Template == nil {
		return nil
	}
	past := o.vm.DeepCopy()
	past.Spec = *o.started
	before, after := newInstance(past, false), newInstance(o.vm, false)
	for _, instance := range []*kubevirtv1.VirtualMachineInstance{before, after} {
		o.defaults(instance)
		instance.Status = kubevirtv1.VirtualMachineInstanceStatus{}
	}
	types := typeChanges(o.started, &o.vm.Spec)
	if o.cluster.LiveUpdate {
		grown(o, before, after)
		if equality.Semantic.DeepEqual(before.Spec, after.Spec) {
			types = nil // other names for the same need no restart
			dropTypes(before.Annotations)
			dropTypes(after.Annotations)
		}
	}
	if equality.Semantic.DeepEqual(before, after) {
		return nil
	}
	a, errA := runtime.DefaultUnstructuredConverter.ToUnstructured(before)
	b, errB := runtime.DefaultUnstructuredConverter.ToUnstructured(after)
	if errA != nil || errB != nil {
		return []string{"spec.template"}
	}
	return differences(types, "spec.template", a, b)
}
