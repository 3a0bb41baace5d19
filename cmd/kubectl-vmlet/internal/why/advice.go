package why

import (
	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/contract"
)

// advice is what to do about a reason; empty where its message says it.
func advice(reason string) string {
	switch reason {
	case "Unschedulable", "FailedScheduling":
		return "compare the pod's nodeSelector, affinity and resources with what `kubectl vmlet nodes --cpu` shows"
	case "FailedPvcNotFound":
		return "create the claim, and the VM starts by itself, or correct the name in the VM's volumes"
	case "FailedFindInstancetype":
		return "create the instancetype, and the VM starts by itself, or name another one: kubectl get vmcf,vmf"
	case "FailedFindPreference":
		return "create the preference, and the VM starts by itself, or name another one: kubectl get vmcp,vmp"
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
	case kubevirtv1.ReasonNodeUnresponsive:
		return "bring the node back; only if it is off and stays off: kubectl taint node NODE node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
	case kubevirtv1.ReasonNodeReplaced:
		return "turn the first machine off, then: kubectl taint node NODE vmlet.io/former-machine-off=:PreferNoSchedule, until the VM has ended"
	case kubevirtv1.ReasonAgentUnavailable, kubevirtv1.ReasonEndUnconfirmed:
		return "look at vmlet's agent on that node: kubectl -n vmlet get pods -o wide; kubectl vmlet nodes"
	case "Terminating":
		return "wait for the VM's terminationGracePeriodSeconds; virtctl stop --force --grace-period=0 ends it at once"
	case kubevirtv1.ReasonPausedByUser:
		return "virtctl unpause vm NAME"
	case kubevirtv1.ReasonPausedIOError:
		return "mend the volume or make room in it: the guest goes on within two minutes"
	case "OOMKilled":
		return "raise resources.limits.memory of the VM, or leave it out"
	case "RestartRequired":
		return "virtctl restart NAME, when the guest may go down"
	case kubevirtv1.ReasonClaimUnsuitable:
		return "give the VM another claim in spec.hibernateStrategy.claimName, or none, or mend this one: docs/hibernation.md has what it must be"
	case kubevirtv1.ReasonCannotSave, kubevirtv1.ReasonEvictionUnsaved:
		return "see the table of what can't be saved in docs/hibernation.md; spec.hibernateStrategy.mode SuspendToDisk may do instead"
	case kubevirtv1.ReasonNoSpace:
		return "make room on the claim, or have its size raised; the guest goes on until then"
	case kubevirtv1.ReasonQueued:
		return "wait: saves on a node take turns; kubectl vmlet resume NAME cancels this one"
	case kubevirtv1.ReasonAttachFailed:
		return "kubectl describe pod of the pod hp-...: it has to run on the VM's node, with the claim"
	case kubevirtv1.ReasonCannotSuspend, kubevirtv1.ReasonSuspendFailed:
		return "set spec.hibernateStrategy.mode to Save, or give the guest its agent and enough swap"
	case contract.RestoreDiskChanged:
		return "put the disk back as it was, or discard the saved memory: kubectl vmlet resume NAME --boot"
	case kubevirtv1.ReasonSaveFailed, kubevirtv1.ReasonRestoreFailed:
		return "it is tried again by itself; what was saved, or the guest that goes on, is not touched by that"
	case contract.RestoreImageUsed, contract.RestoreImageMissing, contract.RestoreImageDamaged, kubevirtv1.ReasonRevisionGone:
		return "the saved memory can't be used: kubectl vmlet resume NAME --boot boots from the disks, as after a power cut"
	case contract.RestoreImageUnfit:
		return "bring back a node, or a vmlet, like the one that saved it; kubectl vmlet resume NAME --boot does without"
	case kubevirtv1.ReasonEvictionLetThrough:
		return "raise spec.hibernateStrategy.warningTimeoutSeconds, and the KubeVirt object's, if saves take longer than that"
	}
	return ""
}
