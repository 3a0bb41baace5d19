package v1

// Reasons of conditions, and of the status of an instance or a VirtualMachine, that one program or
// controller writes and another one decides by. Those of a restore that is refused are in package contract.
const (
	// Of the condition HibernationInProgress while it is True.
	ReasonWaiting    = "Waiting"
	ReasonAttaching  = "Attaching"
	ReasonQueued     = "Queued"
	ReasonSaving     = "Saving"
	ReasonSuspending = "Suspending"
	ReasonCancelling = "Cancelling"
	// Of it while it is False.
	ReasonAttachFailed  = "AttachFailed"
	ReasonNoSpace       = "NoSpace"
	ReasonSaveFailed    = "SaveFailed"
	ReasonCannotSuspend = "GuestCannotSuspend"
	ReasonSuspendFailed = "SuspendFailed"
	ReasonGuestEnded    = "GuestEnded"
	// Of an instance whose guest was saved, or suspended itself, and of the condition Hibernated.
	ReasonSaved     = "Saved"
	ReasonSuspended = "SuspendedToDisk"
	// Of a hibernation that can't begin.
	ReasonClaimUnsuitable = "ClaimUnsuitable"
	ReasonCannotSave      = "GuestCannotBeSaved"
	// Of the condition HibernationRestoreInProgress, and of a resume.
	ReasonResuming      = "Resuming"
	ReasonRestoreFailed = "RestoreFailed"
	ReasonRevisionGone  = "RevisionGone"
	// Of an instance that may or may not run.
	ReasonNodeUnresponsive = "NodeUnresponsive"
	ReasonNodeReplaced     = "NodeReplaced"
	ReasonEndUnconfirmed   = "EndUnconfirmed"
	ReasonAgentUnavailable = "AgentUnavailable"
	// Of the condition Paused.
	ReasonPausedByUser  = "PausedByUser"
	ReasonPausedIOError = "PausedIOError"
	// Of events about evictions.
	ReasonEvictionLetThrough = "EvictionLetThrough"
	ReasonEvictionUnsaved    = "EvictionUnsaved"
)

// Phases of a volume (VolumeStatus.Phase).
const (
	VolumePending = "Pending"
	VolumeBound   = "Bound"
	VolumeReady   = "Ready"
	// Of one that is attached to a pod that runs.
	VolumeOnNode = "AttachedToNode"
	VolumeInPod  = "MountedToPod"
)
