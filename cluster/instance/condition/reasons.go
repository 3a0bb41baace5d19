package condition

import (
	corev1 "k8s.io/api/core/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
)

// Types of conditions beside those of the API.
const (
	PodScheduled = string(corev1.PodScheduled)
	// NetworkLimited is True while the guest's network does less than KubeVirt's.
	NetworkLimited = "NetworkLimited"
)

// Reasons of conditions; those that KubeVirt has in its spelling.
const (
	ReasonFailedCreate     = "FailedCreate"
	ReasonClaimNotFound    = "FailedPvcNotFound"
	ReasonClaimFilling     = "DataVolumeNotReady"
	ReasonClaimInUse       = "ClaimInUse"
	ReasonFailedStart      = "FailedStart"
	ReasonPodNotExists     = "PodNotExists"
	ReasonPodTerminating   = "PodTerminating"
	ReasonPodConditionMiss = "PodConditionMissing"
	ReasonGuestNotRunning  = "GuestNotRunning"
	ReasonNodeUnresponsive = kubevirtv1.ReasonNodeUnresponsive
	ReasonEndUnconfirmed   = kubevirtv1.ReasonEndUnconfirmed
	ReasonNodeReplaced     = kubevirtv1.ReasonNodeReplaced
	ReasonPausedByUser     = kubevirtv1.ReasonPausedByUser
	ReasonPausedIOError    = kubevirtv1.ReasonPausedIOError
	ReasonPaused           = "Paused"
	ReasonNotSupported     = "LiveMigrationNotSupported"
	ReasonUserNetwork      = "UserModeNetwork"
	ReasonEmulation        = "Emulation"
	ReasonAgentConnected   = "AgentConnected"
	ReasonAgentLacks       = "CommandsMissing"
	ReasonCredentials      = "AccessCredentialsSynchronized"
	ReasonNoCredentials    = "AccessCredentialsSyncFailed"
	ReasonAgentUnavailable = kubevirtv1.ReasonAgentUnavailable
	ReasonFailedMount      = "FailedMount"
	ReasonImagePull        = "ErrImagePull"
	ReasonImageBackOff     = "ImagePullBackOff"
)

// Reasons of the condition HibernationInProgress, and of the phase of an instance that ended so.
const (
	// It is True.
	ReasonWaiting    = kubevirtv1.ReasonWaiting
	ReasonAttaching  = kubevirtv1.ReasonAttaching
	ReasonQueued     = kubevirtv1.ReasonQueued
	ReasonSaving     = kubevirtv1.ReasonSaving
	ReasonSuspending = kubevirtv1.ReasonSuspending
	ReasonCancelling = kubevirtv1.ReasonCancelling
	// It is False.
	ReasonAttachFailed  = kubevirtv1.ReasonAttachFailed
	ReasonNoSpace       = kubevirtv1.ReasonNoSpace
	ReasonSaveFailed    = kubevirtv1.ReasonSaveFailed
	ReasonCannotSuspend = kubevirtv1.ReasonCannotSuspend
	ReasonSuspendFailed = kubevirtv1.ReasonSuspendFailed
	ReasonNotSaved      = kubevirtv1.ReasonGuestEnded
	// ReasonSaved and ReasonSuspended are an instance's status.reason, too.
	ReasonSaved     = kubevirtv1.ReasonSaved
	ReasonSuspended = kubevirtv1.ReasonSuspended
)

// Reasons of the conditions HotVCPUChange and HotMemoryChange.
const (
	ReasonResizing = "Resizing"
	ReasonRefused  = "ResizeRefused"
)

// Reasons of the condition HibernationRestoreInProgress.
const (
	ReasonResuming      = kubevirtv1.ReasonResuming
	ReasonRestoreFailed = kubevirtv1.ReasonRestoreFailed
)
