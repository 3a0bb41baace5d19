// Package save has the rules by which the guest of an instance is saved, or suspends itself, as the instance's spec
// says: when the agent is called and when that call is cancelled, which directory the memory goes to, what it was saved
// to as it ended, and how far a restore is (pure). Whether a guest is to be saved is decided by
// cluster/machine/hibernation. Start reading at Start, then at LastImage.
package save
