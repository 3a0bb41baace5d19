// Package v1 has the Kubernetes types of the API group kubevirt.io: VirtualMachine,
// VirtualMachineInstance and KubeVirt, the cluster's configuration.
//
// The API is KubeVirt's, release 1.9, so that its users keep their manifests and tools: every
// field of KubeVirt's is here under its name and with its type, also those that vmlet can't
// honour. A field that a schema lacks is dropped before admission could name it. What vmlet
// adds is in hibernation.go.
//
// A schema fixes shapes, and values where they are few and stable; an empty string counts as
// unset. What depends on several lists, on the cluster or on other objects is checked at
// admission, which this package knows nothing of: it has types and no behaviour, and imports
// Kubernetes' own types alone.
//
// Deep copies (zz_generated.deepcopy.go) and the CustomResourceDefinitions in deploy/crd are
// made from it by `make generate`. Comments on fields are what `kubectl explain` prints. Start
// reading at [VirtualMachine].
//
// +kubebuilder:object:generate=true
// +groupName=kubevirt.io
package v1
