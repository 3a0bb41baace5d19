// Package replicaset is the controller of VirtualMachineInstanceReplicaSets: it keeps as many instances as a set asks
// for. They have no VirtualMachine and keep nothing, so that one that has ended is deleted and another one is made. It
// knows instances by their objects alone.
//
// [Reconciler] observes the objects, decide says what is to be done, and act does it. decide is pure: start reading there.
//
// Names of instances are made by the API server. So what caches have is enough to see that there is nothing to make or
// remove, and not for more: then the API server itself is asked, and that is decided on.
package replicaset
