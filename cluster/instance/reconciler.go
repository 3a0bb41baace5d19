package instance

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/calls"
	"github.com/vmlet/vmlet/cluster/claimuse"
	"github.com/vmlet/vmlet/cluster/instance/observe"
	"github.com/vmlet/vmlet/cluster/saves"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
)

// Agents are the agents of nodes, by the nodes' names, as far as they are called.
type Agents interface {
	// ConfirmEnded returns nil if the agent promises that the pod's VM does not run and never
	// will, on that machine of the node's name; empty: any.
	ConfirmEnded(ctx context.Context, node, machine string, pod types.UID) error
	// Client is for calls to the agent's API about the VM of a pod.
	Client(node string, pod types.UID) (nodev1.NodeServiceClient, error)
}

// Saves are calls that save VMs, by instances' names: they take minutes, and nobody waits for them.
type Saves interface {
	// Look returns a VM's call; false: there is none.
	Look(vm types.NamespacedName) (saves.Call, bool)
	// Start queues a call, unless the VM has one that has not ended.
	Start(vm types.NamespacedName, r saves.Request)
	// Cancel ends a VM's call and forgets it, once it has ended.
	Cancel(vm types.NamespacedName)
}

// Calls are short calls to agents, which nobody waits for.
type Calls interface {
	// Make returns how a call has ended, if it has; else it has it be made, unless it is under way or
	// was made just now.
	Make(key calls.Key, do func(context.Context) (Answers, error)) calls.Answer[Answers]
}

// Answers of agents that were asked whether a VM has ended, by their nodes; nil: it has. Of other calls there
// are none.
type Answers map[string]error

// Recorder records events.
type Recorder interface {
	Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any)
}

// Reconciler is the controller. Its exported fields are set before it is started and not changed.
type Reconciler struct {
	// Observer reads what the controller decides on.
	Observer *observe.Observer
	// Client writes, and reads from the cache that Observer reads from.
	Client client.Client
	Agents Agents
	// Pod makes the pod of an instance with the claims that it names. It writes nothing, and may
	// read the cluster's configuration and the limits of the instance's namespace.
	Pod func(vmi *kubevirtv1.VirtualMachineInstance, claims map[string]*corev1.PersistentVolumeClaim) (*corev1.Pod, error)
	// Attachment makes the pod through which a claim is attached to an instance's pod. Its name
	// is made from the instance's UID and the claim's name.
	Attachment func(vmi *kubevirtv1.VirtualMachineInstance, vm *corev1.Pod, claim string) (*corev1.Pod, error)
	// Saves are the calls by which agents save VMs.
	Saves Saves
	// Calls are all others to agents.
	Calls  Calls
	Events Recorder
	// Making are the claims of pods that are being made, also of those that fill claims.
	Making *claimuse.Locks
}

const (
	// refusedAgain is when a pod is made again that could not be put together: the cluster's
	// configuration may have changed.
	refusedAgain = time.Minute
	// confirmAgain is when an agent is asked again that could not promise that a VM has ended,
	// and that will not tell when it can.
	confirmAgain = 10 * time.Second
	// soon is when to look again at an object that somebody else has changed meanwhile.
	soon = time.Second
)
