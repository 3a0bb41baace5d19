// Package qemu runs virtual machines with QEMU, driven over its own monitor.
//
// [New] makes a vmm.VMM of one QEMU program. Info asks the program what it can
// do; Plan turns a specification into a command line and the files that go with
// it, without touching anything; Connect opens the agent's monitor of a running
// one. QEMU 7.2 and later are supported, on amd64 q35, pc and microvm and on
// arm64 virt; what a QEMU can do is asked of it and never taken from its version.
//
// # Nothing is smuggled in
//
// Objects, devices, disks and network backends are given to QEMU as JSON, where
// a string is a string whatever is in it. What has only the older key=value form
// (-machine, -cpu, -name and the like) has its commas doubled. Files are opened
// by others and handed over as descriptors, so that no path is among the options
// at all.
package qemu
