// Package pods finds the VMs of this node's pods: the volumes in which their shims
// announce themselves, whose pods those are, and what the kubelet has allocated to
// them.
//
// What a pod can write is believed of that pod alone. Whose pod it is follows from the
// kubelet's folders, the kernel (a socket's peer, its cgroup) and the API server.
package pods
