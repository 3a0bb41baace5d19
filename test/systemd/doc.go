// Package systemd tries vmlet on a machine with systemd and nothing but cgroup v2.
//
// The machine is a guest, emulated: Debian from test/guest's disk, which an agent of
// vmlet's runs on this machine, whatever that has itself. A second disk hands in vmlet's
// programs, tiny guests and compiled tests. What package inside finds there comes back
// over the console, which decides how long is waited: as long as it says something.
package systemd
