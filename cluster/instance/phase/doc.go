// Package phase says where an instance is in its life, and why, where it is Unknown or has just ended (pure). That a VM
// has ended is said by view alone; this package says how it ended, by the agent's report, the kubelet's, or what is
// known of the node. Start reading at Of.
package phase
