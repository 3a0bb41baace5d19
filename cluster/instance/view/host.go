package view

import "github.com/vmlet/vmlet/cluster/nodes"

// Host is a node, and what its agent says of a pod's VM.
type Host struct {
	NodeName string
	Node     Node
	Report   nodes.Report
	// Replaced: another machine has taken over the name of the one that the VM was started on, and its Node. What is said
	// there, by kubelet and agent, says nothing of the first one.
	Replaced bool
	// Asked: it is known in this round how the agent answered whether the VM has ended, or that it
	// did not. Promised: it has confirmed that; Denied: it says that a VM runs, or a process that may be one.
	Asked, Promised, Denied bool
}
