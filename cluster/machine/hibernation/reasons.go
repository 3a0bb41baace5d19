package hibernation

// Reasons of events and conditions about hibernations.
const (
	reasonHibernationStarted   = "HibernationStarted"
	reasonHibernated           = "Hibernated"
	reasonHibernationFailed    = "HibernationFailed"
	reasonHibernationTimeout   = "HibernationTimeout"
	reasonHibernationCancelled = "HibernationCancelled"
	reasonNotRunning           = "NotRunning"
	reasonClaimUnsuitable      = "ClaimUnsuitable"
	reasonCannotSave           = "GuestCannotBeSaved"
	reasonSaved                = "Saved"
	// Reasons of an instance: that of one whose guest has suspended itself, and of its condition
	// while it is saved.
	reasonSuspended  = "SuspendedToDisk"
	reasonSaving     = "Saving"
	reasonSuspending = "Suspending"
	reasonQueued     = "Queued"
	reasonGuestEnded = "GuestEnded"
)

// Reasons of events and conditions about resumes.
const (
	reasonResumed        = "Resumed"
	reasonResumeFailed   = "ResumeFailed"
	reasonImageDiscarded = "ImageDiscarded"
	reasonImageKept      = "ImageKept"
	ReasonRestoreFailed  = "RestoreFailed"
	reasonRevisionGone   = "RevisionGone"
)
