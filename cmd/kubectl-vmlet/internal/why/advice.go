package why

// advice is what to do about a reason; empty where its message says it.
func advice(reason string) string {
	switch reason {
	case "Unschedulable", "FailedScheduling":
		return "compare the pod's nodeSelector, affinity and resources with what `kubectl vmlet nodes` shows"
	case "FailedPvcNotFound":
		return "create the claim, and the VM starts by itself, or correct the name in the VM's volumes"
	case "DataVolumeNotReady":
		return "wait, or see how far its import is: kubectl describe datavolume"
	case "FailedDataVolumeCreate", "FailedDataVolumeImport", "UnauthorizedDataVolumeCreate", "SourcePVCNotAvailabe":
		return "kubectl describe datavolume; then correct spec.dataVolumeTemplates"
	case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull":
		return "correct the image's name, or give the registry's credentials as imagePullSecret"
	case "FailedMount", "FailedAttachVolume":
		return "create what is missing, and the VM starts by itself; for a claim: kubectl describe pvc"
	case "FailedCreate":
		return "by its message: a quota, a policy or a webhook refuses what the VM needs"
	case "NodeUnresponsive":
		return "bring the node back; only if it is off and stays off: kubectl taint node NODE node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
	case "AgentUnavailable":
		return "look at vmlet's agent on that node: kubectl -n vmlet get pods -o wide; kubectl vmlet nodes"
	case "Terminating":
		return "wait for the VM's terminationGracePeriodSeconds; virtctl stop --force --grace-period=0 ends it at once"
	case "PausedByUser":
		return "virtctl unpause vm NAME"
	case "PausedIOError":
		return "mend the volume or make room in it: the guest goes on within two minutes"
	case "OOMKilled":
		return "raise resources.limits.memory of the VM, or leave it out"
	case "RestartRequired":
		return "virtctl restart NAME, when the guest may go down"
	}
	return ""
}
