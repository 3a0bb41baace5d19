// Package contract has the names on which vmlet's node half and its cluster half
// agree: what the agent writes to a Node, what it offers to the kubelet, and how it
// finds a VM's pod. Each half spells them through these constants.
//
// It holds names alone and imports nothing: what a name's value means is decided where
// it is written. KubeVirt's names are those of its API
// (staging/src/kubevirt.io/api/core/v1/types.go), so that its users' selectors work
// unchanged.
package contract
