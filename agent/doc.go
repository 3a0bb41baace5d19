// Package agent assembles the node's agent from the packages below it: the VMs (agent/vm,
// agent/place), those of pods (agent/podvm), the API (agent/api), what the node can do
// (agent/node), the Node object (agent/nodeobject), device plugins, metrics and health. It
// alone imports all of them.
//
// The agent holds nothing that a running guest needs: killed and started again, it finds
// every shim and goes on. Start reading at Run.
package agent
