// Package v1 has the Kubernetes types of the API group instancetype.kubevirt.io: instancetypes,
// which give a VirtualMachine its size, and preferences, which fill what it leaves open; each of a
// namespace or of the cluster.
//
// The API is KubeVirt's, release 1.9, with every field of its v1beta1, which is served with the
// same schema. As in api/kubevirt/v1, a field that vmlet can't honour is here, and refused by its
// path when a VirtualMachine asks for it: this package has types and no behaviour.
//
// Deep copies and the CustomResourceDefinitions in deploy/crd are made by `make generate`. Start
// reading at [VirtualMachineInstancetypeSpec] and [VirtualMachinePreferenceSpec].
//
// +kubebuilder:object:generate=true
// +groupName=instancetype.kubevirt.io
package v1
