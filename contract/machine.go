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
