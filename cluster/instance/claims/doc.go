// Package claims has the rules of the claims that an instance names: why its pod can't be made yet, as one of them is
// missing, is being filled, or is used by another VM (pure). A disk has one writer, or readers, or VMs that share it:
// cluster/claimuse says which uses exclude each other. Start reading at Waits.
package claims
