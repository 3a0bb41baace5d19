// Package agent is the node agent: it serves the API, decides about the VMs'
// lives, keeps the record of them and makes what they need of the host (users,
// cgroups, taps, the mount that their RAM is in).
//
// It holds nothing that a running guest needs. Killed and started again it
// finds every shim and goes on.
package agent
