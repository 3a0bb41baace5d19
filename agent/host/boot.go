// Package host makes and takes back what a VM needs of the machine that it
// runs on: a user id, a cgroup, taps, access to the hypervisor's device, and
// the mount that guest RAM is in.
package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// BootID is the kernel's name for the time since it booted (random(4)). proc
// is where procfs is mounted.
func BootID(proc string) (string, error) {
	b, err := os.ReadFile(filepath.Join(proc, "sys/kernel/random/boot_id"))
	if err != nil {
		return "", fmt.Errorf("finding out whether the machine was rebooted: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}
