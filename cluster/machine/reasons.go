package machine

// Reasons of conditions and events, as KubeVirt spells them.
const (
	reasonSuccessfulCreate           = "SuccessfulCreate"
	reasonFailedCreate               = "FailedCreate"
	reasonSuccessfulDelete           = "SuccessfulDelete"
	reasonFailedDelete               = "FailedDelete"
	reasonFailedStart                = "FailedStart"
	reasonSuccessfulDataVolumeCreate = "SuccessfulDataVolumeCreate"
	reasonFailedDataVolumeCreate     = "FailedDataVolumeCreate"
	reasonFailedDataVolumeImport     = "FailedDataVolumeImport"
	reasonUnauthorizedDataVolume     = "UnauthorizedDataVolumeCreate"
	reasonSourceNotAvailable         = "SourcePVCNotAvailabe"
	reasonNoInstance                 = "VMINotExists"
	reasonNoInstanceCondition        = "VMIConditionMissing"
	reasonTemplateChanged            = "RestartRequired"
)

// Reasons of the condition Failure, as KubeVirt spells them.
const (
	reasonNoInstancetype = "FailedFindInstancetype"
	reasonNoPreference   = "FailedFindPreference"
)
