package machine

import (
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/machine/run"
)

// revisionData is what a ControllerRevision keeps of a VM.
type revisionData struct {
	Spec kubevirtv1.VirtualMachineSpec `json:"spec"`
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
	before, after := run.NewInstance(past, false), run.NewInstance(o.vm, false)
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
