// Package hibernation has the rules of VirtualMachines that hibernate: when a guest is saved and to which claim, what
// becomes of the image, and when the guest goes on from it (pure). It knows no pods, nodes or agents: what is done with
// a guest is its instance's, by its spec, and its status reports how far that is.
//
// Each rule is a function of a [View], what was observed of the VM. [Decide] returns the hibernation as it is to be,
// with the actions that lead there. When the VM starts, [Restores], [Restore] and [Mount] say with what, and
// [Conditions] and [Printable] what its status says. Start reading at Decide.
package hibernation
