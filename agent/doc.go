// Package agent puts the node's agent together, and alone sees all of its rooms: the VMs
// (agent/vm, agent/place), those of pods (agent/podvm), the API (agent/api), what the node
// is (agent/node) and says of itself in Kubernetes, device plugins, metrics and health.
//
// It holds nothing that a running guest needs. Killed and started again it
// finds every shim and goes on. Run is where to start reading.
package agent
