package observe

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/nodes"
	"github.com/vmlet/vmlet/cluster/saves"
)

// Reports are what agents say of the VMs of pods that are bound to their nodes, by the nodes' names.
type Reports interface {
	// Report is the last that the agent has said of the pod's VM.
	Report(node string, pod types.UID) nodes.Report
	// Nodes are those that have an agent.
	Nodes() []string
}

// SaveCalls are the calls by which agents save VMs, by instances' names.
type SaveCalls interface {
	// Look returns a VM's call; false: there is none.
	Look(vm types.NamespacedName) (saves.Call, bool)
}

// Observer reads all that is known of an instance. It writes nothing. Its exported fields are set before it is used
// and not changed; its methods may be called concurrently.
type Observer struct {
	// Client reads from a cache that has the indexes of Indexes. Live reads from the API server:
	// it is asked before anything follows from an object's absence.
	Client, Live client.Reader
	Agents       Reports
	Saves        SaveCalls
	// DataVolumes says whether the cluster has the kinds of CDI.
	DataVolumes bool
	// PodName is the name of an instance's pod, which is made from the instance's UID alone.
	PodName func(vmi *kubevirtv1.VirtualMachineInstance) string
	// Images are the images of a pod's containers, by digest where that is known.
	Images func(vm *corev1.Pod) []kubevirtv1.SavedContainerImage
	Now    func() time.Time

	leases leases
	writes ownWrites
}

// Note has an instance that was written be seen as it was stored, though the cache may not have it yet.
func (r *Observer) Note(before, stored *kubevirtv1.VirtualMachineInstance) {
	r.writes.note(before, stored)
}
