package hibernation

import kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"

// Reasons of events and conditions about hibernations.
const (
	reasonHibernationStarted   = "HibernationStarted"
	reasonHibernated           = "Hibernated"
	reasonHibernationFailed    = "HibernationFailed"
	reasonHibernationTimeout   = "HibernationTimeout"
	reasonHibernationCancelled = "HibernationCancelled"
	reasonNotRunning           = "NotRunning"
	reasonClaimUnsuitable      = kubevirtv1.ReasonClaimUnsuitable
	reasonCannotSave           = kubevirtv1.ReasonCannotSave
	reasonSaved                = kubevirtv1.ReasonSaved
	// Reasons of an instance: that of one whose guest has suspended itself, and of its condition
	// while it is saved.
	reasonSuspended  = kubevirtv1.ReasonSuspended
	reasonSaving     = kubevirtv1.ReasonSaving
	reasonSuspending = kubevirtv1.ReasonSuspending
	reasonQueued     = kubevirtv1.ReasonQueued
	reasonGuestEnded = kubevirtv1.ReasonGuestEnded
)

// Reasons of events and conditions about resumes.
const (
	reasonResumed        = "Resumed"
	reasonResumeFailed   = "ResumeFailed"
	reasonImageDiscarded = "ImageDiscarded"
	reasonImageKept      = "ImageKept"
	ReasonRestoreFailed  = kubevirtv1.ReasonRestoreFailed
	reasonRevisionGone   = kubevirtv1.ReasonRevisionGone
)
