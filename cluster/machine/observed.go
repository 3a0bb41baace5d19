package machine

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/cluster/machine/action"
	"github.com/vmlet/vmlet/cluster/machine/hibernation"
	"github.com/vmlet/vmlet/contract"
)

// observed is all that decide goes by. Nothing in it is changed.
type observed struct {
	// vm is nil if there is none of that name. It has what its instancetype and preference say.
	vm    *kubevirtv1.VirtualMachine
	types vmTypes
	// instance has the VM's name, no matter who made it; nil if there is none.
	instance *kubevirtv1.VirtualMachineInstance
	// started is the VM's spec that the instance was started with; nil if it is unknown or
	// of the VM's present generation.
	started *kubevirtv1.VirtualMachineSpec
	// volumes are the claims of the VM's volumes and of its dataVolumeTemplates.
	volumes []volume
	// Memory is the guest's, of a VM that hibernates.
	hibernation.Memory
	// cluster is the cluster's configuration.
	cluster configuration.Configuration
	// imports: the cluster has DataVolumes.
	imports bool
	// failed is what was tried just now, in vain; nil if nothing was. It is not tried again
	// at once.
	failed *action.Failure
	// defaults fills what an instance leaves unset, as admission does.
	defaults func(*kubevirtv1.VirtualMachineInstance)
	now      time.Time
}

// own returns the instance if it is this VM's.
func (o observed) own() *kubevirtv1.VirtualMachineInstance {
	if o.vm == nil || o.instance == nil || !metav1.IsControlledBy(o.instance, o.vm) {
		return nil
	}
	return o.instance
}

// view is what the rules of hibernation go by.
func (o observed) view(strategy kubevirtv1.RunStrategy, requests []kubevirtv1.StateChangeRequest) hibernation.View {
	return hibernation.View{
		VM: o.vm, Own: o.own(), Strategy: strategy, Request: first(requests),
		Memory: o.Memory, Cluster: o.cluster, Defaults: o.defaults, Now: o.now,
	}
}

// strategyOf returns the VM's run strategy, also where it is spelled the old way.
func strategyOf(vm *kubevirtv1.VirtualMachine) kubevirtv1.RunStrategy {
	old := *running(vm)
	switch {
	case vm.Spec.RunStrategy != nil:
		return *vm.Spec.RunStrategy
	case old == nil:
		return ""
	case *old:
		return kubevirtv1.RunStrategyAlways
	}
	return kubevirtv1.RunStrategyHalted
}

// running returns the field that run strategies were before they had names.
func running(vm *kubevirtv1.VirtualMachine) **bool {
	//lint:ignore SA1019 users' manifests still have it
	return &vm.Spec.Running
}

// volume is one claim that a VM uses, and the DataVolume of that name, which fills it.
type volume struct {
	name string
	// template is nil unless the DataVolume is one of the VM's dataVolumeTemplates.
	template *kubevirtv1.DataVolumeTemplateSpec
	// dataVolume is nil if there is none, and vmlet does not fill the claim itself.
	dataVolume *dataVolume
	// bindNow: the claim is filled though no VM that has it is to start.
	bindNow bool
	claim   claim
}

// claim is what is known of a PersistentVolumeClaim.
type claim int

const (
	missing claim = iota
	unbound
	bound
)

// missing: the VM has to make the DataVolume. A claim without one counts as filled.
func (v volume) missing() bool {
	return v.template != nil && v.dataVolume == nil && v.claim == missing
}

// ready: a guest may use the claim. Where the import waits for its first consumer, the VM's
// pod is that.
func (v volume) ready() bool {
	if v.dataVolume != nil {
		return v.dataVolume.done()
	}
	return !v.missing()
}

// binding: the claim waits for a volume, and the import for the claim.
func (v volume) binding() bool {
	return v.claim == unbound && (v.dataVolume == nil || !v.dataVolume.begun())
}

// immediate: DataVolumes are made before the VM first starts.
func immediate(vm *kubevirtv1.VirtualMachine) bool {
	return vm.Annotations[contract.AnnotationImmediateDataVolumes] != "false"
}
