// Package v1beta1 has the Kubernetes types of the API group pool.kubevirt.io: VirtualMachinePool, a
// number of VirtualMachines made from one template.
//
// The API is KubeVirt's, release 1.9, with every field of its v1beta1, and what the design of pools has
// beyond: its spellings, ordered policies, memory that is kept. v1alpha1 is served with the same schema. As
// in api/kubevirt/v1, this package has types and no behaviour; package cluster/pool has that.
//
// Deep copies and the CustomResourceDefinition in deploy/crd are made by `make generate`. Start
// reading at [VirtualMachinePoolSpec].
//
// +kubebuilder:object:generate=true
// +groupName=pool.kubevirt.io
package v1beta1
