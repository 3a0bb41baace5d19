package sysfs

import "path/filepath"

// Roots are the places that the system is read from, so that a tree captured
// on another machine can be read just the same. An empty one stands for the
// running system's own: /sys, /proc, /dev.
type Roots struct {
	Sys, Proc, Dev string
}

// SysPath returns the path of a file below /sys, under the root.
func (r Roots) SysPath(parts ...string) string { return under(r.Sys, "/sys", parts) }

// ProcPath returns the path of a file below /proc, under the root.
func (r Roots) ProcPath(parts ...string) string { return under(r.Proc, "/proc", parts) }

// DevPath returns the path of a file below /dev, under the root.
func (r Roots) DevPath(parts ...string) string { return under(r.Dev, "/dev", parts) }

func under(root, fallback string, parts []string) string {
	if root == "" {
		root = fallback
	}
	return filepath.Join(append([]string{root}, parts...)...)
}
