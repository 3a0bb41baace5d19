// Package faultfs is a filesystem for tests that fails on purpose. It shows a
// folder through FUSE and follows a script: the N-th operation of a kind fails with
// an errno, is short, waits, reads a wrong bit, or is carried out and fails all the
// same. It speaks to the kernel itself and needs root and /dev/fuse, nothing else.
//
// # Faults
//
// Walk tries something with each fault at each of its operations, one after the
// other, and has each outcome judged.
//
// # Power cuts
//
// A Recording has all changes, and what was made durable when: the content of a file
// by fsync(2) of the file, a name by fsync(2) of its folder, as POSIX has it and no
// more. (ext4 and XFS keep more in order than that; other filesystems do not.) From
// it States rebuilds, for each moment, what a disk might have after a power cut:
// all that was synced, and any part of what was not.
package faultfs
