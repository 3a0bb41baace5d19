// Package virtualmachines has tests of VirtualMachines on a real cluster of one node, with
// vmlet installed as deploy/cluster has it. They are skipped where no cluster can be started.
package virtualmachines
