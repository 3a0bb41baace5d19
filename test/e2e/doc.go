// Package e2e tests vmlet as its users have it: the real client, agent, shims
// and VMMs together, on this machine.
//
// TestConformance is one suite for every VMM under every hypervisor that the
// machine has: each QEMU, and cloud-hypervisor where it is in PATH, else its
// stand-in. All other tests are about one of them, or about none.
//
// The tests need root, QEMU and a guest or two (test/setup test fetches what
// Debian has), and are skipped with a word of why where something is missing.
// Each agent has folders, user ids and cgroups of its own, and a test fails if
// anything of them is left when it ends: processes, mounts, cgroups, RAM files,
// sockets, access to devices.
package e2e
