// Package attach has the rules of volumes that are attached to the pod of an instance while that runs, each through a
// pod of its own: which one is wanted, when its pod is made and deleted, and how far it is (pure). The guest's memory
// is saved to it, or read from it. The package does not know when a guest is saved. Start reading at Attach.
package attach
