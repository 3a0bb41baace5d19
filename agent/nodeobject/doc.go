// Package nodeobject keeps what Kubernetes' Node object says of this node's
// virtualisation: the labels that follow from what the machine can do, whether it
// can run VMs, and an annotation or two. It also renews the agent's Lease, and
// knows whether a virt-handler of KubeVirt's does the same on this node.
//
// Labels are written by server-side apply (field manager kube.FieldManager):
// only keys of our own, never by force, and only if something differs from what it
// should be. What is to be written is decided from what was last seen of the Node
// alone, see makePlan. docs/node-object.md is for its users.
package nodeobject

// Labels and annotations that say something of a running agent, beside those of
// package labels; KubeVirt's are those of its API (staging/src/kubevirt.io/api/core/v1/types.go).
const (
	// LabelSchedulable is "true" where VMs can be started.
	LabelSchedulable = "kubevirt.io/schedulable"
	// LabelCPUManager is "true" where the kubelet gives pods CPUs of their own.
	LabelCPUManager = "kubevirt.io/cpumanager"
	// AnnotationHeartbeat is when the Node was last written, RFC 3339.
	AnnotationHeartbeat = "kubevirt.io/heartbeat"
	// AnnotationSkipLabels is KubeVirt's, for its labeller: labels of what the
	// machine can do stay as they are.
	AnnotationSkipLabels = "node-labeller.kubevirt.io/skip-node"
	// AnnotationSkip leaves all of the Node as it is.
	AnnotationSkip = "node.vmlet.io/skip"
	// AnnotationPaused leaves all of the Node as it is until somebody takes it
	// away. The agent sets it when somebody else changes back what it writes.
	AnnotationPaused = "node.vmlet.io/paused"
)
