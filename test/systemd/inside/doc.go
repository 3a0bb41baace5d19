// Package inside has what test/systemd runs in its guest: tests for root on a machine
// of their own, with systemd and cgroup v2, that they change, restart and switch off.
// Anywhere else they are skipped. Start reading at TestNode.
package inside
