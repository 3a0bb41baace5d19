// Package spec reads, completes and checks the specification of a VM
// (proto/vmlet/spec/v1). It is pure: it touches no file and no device, so
// the client, the agent and a planner may all use it.
//
// The way of a specification is [Parse], [Default], [Validate]; [Marshal] is
// Parse's inverse. All functions may be called concurrently, and none changes
// or keeps what it is given.
package spec
