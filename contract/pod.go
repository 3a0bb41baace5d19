package contract

const (
	// ContainerStack is the container in which the image of a virtualisation stack is asked what it can do.
	ContainerStack = "stack"
	// VolumeName is the name of the volume of a VM's pod in which the shim announces
	// itself: an emptyDir with medium Memory. The agent finds the pod by it.
	VolumeName = "vmlet"
	// VolumePath is where the shim expects that volume in its container.
	VolumePath = "/run/vmlet"
)
