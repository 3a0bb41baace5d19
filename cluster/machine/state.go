package machine

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/configuration"
	"github.com/vmlet/vmlet/cluster/machine/action"
	"github.com/vmlet/vmlet/cluster/machine/hibernation"
)

// state is what was observed of a VM: all that decide goes by. Nothing in it is changed.
type state struct {
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

// vmTypes is what is known of a VM's instancetype and preference.
type vmTypes struct {
	// used and preferred are what the VM's status is to say of them, and revisions what has to be
	// made before: they keep both as they are when the VM begins with them.
	used, preferred *kubevirtv1.InstancetypeStatusRef
	revisions       []*appsv1.ControllerRevision
	// fault is why the VM can't be expanded by them; nil: it has been.
	fault *action.Failure
}

// own returns the instance if it is this VM's.
func (o state) own() *kubevirtv1.VirtualMachineInstance {
	if o.vm == nil || o.instance == nil || !metav1.IsControlledBy(o.instance, o.vm) {
		return nil
	}
	return o.instance
}

// view is what the rules of hibernation go by, without what the run strategy asks for.
func (o state) view() hibernation.View {
	return hibernation.View{VM: o.vm, Own: o.own(), Memory: o.Memory, Cluster: o.cluster, Defaults: o.defaults, Now: o.now}
}
