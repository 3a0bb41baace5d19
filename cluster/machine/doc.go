// Package machine is the controller of VirtualMachines: it makes and deletes the
// VirtualMachineInstance that each run of a VM has, by its run strategy, and says in the
// VM's status how that goes. It knows nothing of pods and nodes: those are the instance's.
//
// [Reconciler] observes the objects, decide says what is to be done, and act does it. decide
// is a pure function of the state that was observed: start reading there, then decideRun, which
// applies the run strategy, and package hibernation, which has the rules of the guest's saved
// memory. The instance has the VM's name, so the
// API server itself keeps a VM from having two. Whatever is done is decided on what the API
// server says, never on caches alone, and deletions name the UID that they mean; so stale
// caches and a second leader do no harm. What a deletion would erase (how the instance
// ended) is in the VM's status before it.
package machine
