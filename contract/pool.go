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
	// pod, the state that it stands by in: Hibernated or Halted. The pod is never ready.
	LabelPoolStandby = "vmlet.io/pool-standby"
	// ConditionServes is the readiness gate of a pod of a VM that stands by, which nobody sets: Services leave
	// it out.
	ConditionServes = "vmlet.io/serves"
	// AnnotationPoolPreservedSince is there when that was (RFC 3339).
	AnnotationPoolPreservedSince = "vmlet.io/pool-preserved-since"
)
