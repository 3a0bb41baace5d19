// Package relay is a VMM that can't be trusted: a program that starts the real QEMU,
// passes its monitors on, and misbehaves when a test has told it to, for tests of what
// agent and shim make of that.
//
// The program looks for what it is to do in a file beside it, named as the VM is, with
// ".json" after it (see [Knobs.Write]), anew at each command, and for the real QEMU in a
// link named "real". Asked for anything but a VM, it is the real one.
package relay
