package contract

const (
	// VolumeName is the name of the volume of a VM's pod in which the shim announces
	// itself: an emptyDir with medium Memory. The agent finds the pod by it.
	VolumeName = "vmlet"
	// VolumePath is where the shim expects that volume in its container.
	VolumePath = "/run/vmlet"
)
