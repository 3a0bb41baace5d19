package contract

// What a VirtualMachinePool writes on its members.
const (
	// LabelPool is, on a pool's VirtualMachines, their instances and pods, and the claims that it keeps,
	// the pool's UID.
	LabelPool = "vmlet.io/pool"
	// LabelPoolIndex is the member's index there.
	LabelPoolIndex = "vmlet.io/pool-index"
	// LabelPoolRevision is, on a VirtualMachine and on claims that are kept, the ControllerRevision of the
	// template that the VM was made from or changed to last. The name is KubeVirt's.
	LabelPoolRevision = "kubevirt.io/vm-pool-revision-name"
	// LabelPoolPreserved is, on a member that was scaled in and on claims that are kept of one, what is
	// kept: Offline or Online.
	LabelPoolPreserved = "vmlet.io/pool-preserved"
	// LabelPoolStandby is, on a member that stands by until the pool is scaled out, on its instance and on its
	// pod, the state that it stands by in: Hibernated, Halted or Running. The pod is not ready.
	LabelPoolStandby = "vmlet.io/pool-standby"
	// AnnotationPoolPaused is, on a VirtualMachine that stands by and on its instance, the UID of the instance
	// whose guest is to be paused. An instance that comes after it boots first.
	AnnotationPoolPaused = "vmlet.io/pool-paused"
	// ConditionServes is the readiness gate of a pod of a VM that stands by, by which Services leave it out. It is set
	// when the VM is taken while it runs.
	ConditionServes = "vmlet.io/serves"
	// AnnotationPoolPreservedSince is there when that was (RFC 3339).
	AnnotationPoolPreservedSince = "vmlet.io/pool-preserved-since"
)
