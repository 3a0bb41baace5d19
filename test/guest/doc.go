// Package guest makes the guests that vmlet's tests and demo boot.
//
// There are three. [PVH] is a few hundred bytes of 32-bit machine code that
// runs wherever a VMM runs at all, in QEMU and in cloud-hypervisor, under hardware
// virtualisation that is too weak for a real kernel too. [Linux] is Debian's
// cloud kernel with an initramfs whose only program is this module's own
// test/guest/init. [CloudDisk] is a Debian root filesystem with systemd,
// QEMU and cloud-init.
//
// All three start with the line "vmlet guest up" on the first serial port and
// then write "count N" lines (the disk guest: only what its user-data says).
//
// What has to come from Debian's archive is put into a cache folder by
// test/setup; nothing here reaches for the network.
package guest
