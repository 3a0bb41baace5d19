package contract

// LabelDefinition is on each CustomResourceDefinition that is vmlet's. Kustomizations of users
// change the labels that are common to applications; this is none of them.
const LabelDefinition = "vmlet.io/definition"

// LabelHibernationOf is, on a claim that was made for a VM's memory, the VirtualMachine's UID.
const LabelHibernationOf = "vmlet.io/hibernation-of"

// AnnotationHibernationSize is, on a VirtualMachine, the least size of a claim that is made for its
// memory, a quantity: "vmlet.io/hibernation-size: 20Gi".
const AnnotationHibernationSize = "vmlet.io/hibernation-size"

// What a VirtualMachine has beside its instance.
const (
	// RevisionPrefix, the VirtualMachine's UID, "-" and its generation are the name of the
	// ControllerRevision that has the spec which an instance was started with.
	RevisionPrefix = "revision-start-vm-"
	// AnnotationImmediateDataVolumes is "false" on a VirtualMachine whose DataVolumes are
	// made when it first starts, and not before.
	AnnotationImmediateDataVolumes = "kubevirt.io/immediate-data-volume-creation"
	// AnnotationAllowClaimAdoption lets CDI fill a claim that is there before its DataVolume.
	AnnotationAllowClaimAdoption = "cdi.kubevirt.io/allowClaimAdoption"
	// AnnotationBindImmediately on a DataVolume has CDI fill its claim without waiting for a pod
	// that uses it, whatever its value.
	AnnotationBindImmediately = "cdi.kubevirt.io/storage.bind.immediate.requested"
	// AnnotationLatestVersion and AnnotationStorageVersion are on objects of KubeVirt's that
	// admission has seen: versions of its API, the latest and the stored one.
	AnnotationLatestVersion  = "kubevirt.io/latest-observed-api-version"
	AnnotationStorageVersion = "kubevirt.io/storage-observed-api-version"
)

// What a claim has that vmlet fills for a VirtualMachine's dataVolumeTemplates, where there is no CDI.
const (
	// AnnotationImport says what the claim is imported from, for people. A claim that has it is
	// filled when AnnotationImportPhase is ImportSucceeded, and used by no guest before.
	AnnotationImport      = "vmlet.io/import"
	AnnotationImportPhase = "vmlet.io/import-phase"
	// AnnotationImportProgress is a percentage, AnnotationImportRestarts how often the import has
	// begun again, AnnotationImportMessage what it waits for, or why it failed last.
	AnnotationImportProgress = "vmlet.io/import-progress"
	AnnotationImportRestarts = "vmlet.io/import-restarts"
	AnnotationImportMessage  = "vmlet.io/import-message"
	// AnnotationImportNext is when the next pod is made after one that failed, by RFC 3339.
	AnnotationImportNext = "vmlet.io/import-next"
)

// Phases of an import, by the words of CDI's DataVolumes.
const (
	ImportPending    = "Pending"
	ImportWaiting    = "WaitForFirstConsumer"
	ImportScheduled  = "ImportScheduled"
	ImportInProgress = "ImportInProgress"
	ImportFailed     = "Failed" // and another try follows
	ImportSucceeded  = "Succeeded"
	// ImportClone: the storage makes the volume as a copy of another when a pod uses it.
	ImportClone = "PendingPopulation"
)

// What a pod has that fills a claim.
const (
	// LabelAppImporter is the value of LabelApp.
	LabelAppImporter = "vmlet-importer"
	// LabelImportOf is the UID of the claim.
	LabelImportOf = "vmlet.io/import-of"
	// AnnotationImportSource tells the sources of imports apart: a pod that has another than the
	// VirtualMachine says now is replaced.
	AnnotationImportSource = "vmlet.io/import-source"
	// ContainerImporter is its container, which ends with an Imported when the claim is filled, and says its
	// progress at ImporterPort.
	ContainerImporter = "importer"
	ImporterPort      = 8080
)

// Annotations of an instance that say which instancetype and preference its VirtualMachine has.
const (
	AnnotationInstancetype        = "kubevirt.io/instancetype-name"
	AnnotationClusterInstancetype = "kubevirt.io/cluster-instancetype-name"
	AnnotationPreference          = "kubevirt.io/preference-name"
	AnnotationClusterPreference   = "kubevirt.io/cluster-preference-name"
)

// Labels of a ControllerRevision that has an instancetype or preference as it was when a
// VirtualMachine began with it.
const (
	LabelObjectGeneration = "instancetype.kubevirt.io/object-generation"
	LabelObjectKind       = "instancetype.kubevirt.io/object-kind"
	LabelObjectName       = "instancetype.kubevirt.io/object-name"
	LabelObjectUID        = "instancetype.kubevirt.io/object-uid"
	LabelObjectVersion    = "instancetype.kubevirt.io/object-version"
)

// Labels of a volume, or of what it is made from, that name the instancetype and preference for
// its guest.
const (
	LabelDefaultInstancetype     = "instancetype.kubevirt.io/default-instancetype"
	LabelDefaultInstancetypeKind = "instancetype.kubevirt.io/default-instancetype-kind"
	LabelDefaultPreference       = "instancetype.kubevirt.io/default-preference"
	LabelDefaultPreferenceKind   = "instancetype.kubevirt.io/default-preference-kind"
)

// SuggestedTypes are the variables of a container image's environment that name the instancetype
// and preference for the guest on its disk, each with the label that has its value.
func SuggestedTypes() map[string]string {
	return map[string]string{
		"INSTANCETYPE_KUBEVIRT_IO_DEFAULT_INSTANCETYPE":      LabelDefaultInstancetype,
		"INSTANCETYPE_KUBEVIRT_IO_DEFAULT_INSTANCETYPE_KIND": LabelDefaultInstancetypeKind,
		"INSTANCETYPE_KUBEVIRT_IO_DEFAULT_PREFERENCE":        LabelDefaultPreference,
		"INSTANCETYPE_KUBEVIRT_IO_DEFAULT_PREFERENCE_KIND":   LabelDefaultPreferenceKind,
	}
}
