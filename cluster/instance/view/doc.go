// Package view has what was observed of an instance: the objects of the API server, what kubelets and nodes' agents say
// of its pod, and what follows from that alone. The rules of all other rooms are functions of a [View].
//
// What keeps a VM from running twice is here: [Pod.Ended] alone says that a pod's VM does not run and never will. It is
// a function of the witnesses (kubelet, agent, the cluster's administrator), and no rule decides it otherwise. The
// package writes nothing, asks nobody, and knows no rule. Start reading at View, then at ended.go.
package view
