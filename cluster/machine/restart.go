package machine

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/machine/run"
	"github.com/vmlet/vmlet/contract"
)

// restartChanges returns the fields of the VM that a restart would change in its instance:
// those of the instance that the VM had when it was started against those of the one that it
// would be started with now, with the same defaults in both.
func restartChanges(o state) []string {
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

// typeChanges are the matchers of the VM that are others than those that its instance was started
// with.
func typeChanges(before, after *kubevirtv1.VirtualMachineSpec) (paths []string) {
	if !equality.Semantic.DeepEqual(before.Instancetype, after.Instancetype) {
		paths = append(paths, "spec.instancetype")
	}
	if !equality.Semantic.DeepEqual(before.Preference, after.Preference) {
		paths = append(paths, "spec.preference")
	}
	return paths
}

// dropTypes removes from an instance's annotations those that name its types.
func dropTypes(annotations map[string]string) {
	for _, key := range []string{
		contract.AnnotationInstancetype, contract.AnnotationClusterInstancetype, contract.AnnotationPreference, contract.AnnotationClusterPreference,
	} {
		delete(annotations, key)
	}
}
