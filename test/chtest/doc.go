// Package chtest is a stand-in for cloud-hypervisor 53, to test against where
// none is installed. It is a program to put in the VMM's place (see [Build]) and
// a value to run in a test's own process (see [New]).
//
// It is strict: what the real one refuses it refuses, with the same status and an
// array of messages, the outermost cause first. The messages' words are its own,
// since nothing may hang on them. Requests are answered one after the other, over
// all connections, as the real one's only HTTP thread does.
//
// It has guest memory, and a guest: a goroutine that counts in the first bytes of
// RAM while the VM runs, and writes to the serial console what the guest of
// test/guest writes. It runs no instruction of the payload. Paths are opened,
// locked, mapped and written as the real one does it; what Landlock would refuse
// is refused by a check of paths, and not by the kernel.
//
// What a test wants to go wrong is said by [Knobs].
//
// In it are the calls, members, consoles and options that vmlet uses, and no others.
package chtest
