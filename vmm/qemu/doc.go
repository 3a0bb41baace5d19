// Package qemu knows what can be known of QEMU without running it: defaults, limits, and
// how a specification becomes a command line and the files that go with it.
//
// It runs nothing and opens nothing, so that anyone who judges specifications away from a
// node can link it. Package probe asks the program on this node, monitor is the agent's
// connection to a running VM, driver is the shim's, and wire has what they share. QEMU
// 7.2 and later are supported, on amd64 q35, pc and microvm and on arm64 virt; what a
// QEMU can do is asked of it and never taken from its version.
//
// # Nothing is smuggled in
//
// Objects, devices, disks and network backends are given to QEMU as JSON, where
// a string is a string whatever is in it. What has only the older key=value form
// (-machine, -cpu, -name and the like) has its commas doubled. Files are opened
// by others and handed over as descriptors, so that no path is among the options
// at all.
package qemu
