// Package nodeobject keeps what Kubernetes' Node object says of this node's
// virtualisation: the labels that follow from what the machine can do, whether it
// can run VMs, and an annotation or two. It also renews the agent's Lease, and
// knows whether a virt-handler of KubeVirt's does the same on this node.
//
// Labels are written by server-side apply (field manager kube.FieldManager):
// only keys of our own, never by force, and only if something differs from what it
// should be. What is to be written is decided from what was last seen of the Node
// alone, see makePlan. docs/node-object.md is for its users.
package nodeobject
