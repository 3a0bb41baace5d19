package sysfs

import "path/filepath"

// Roots are the places that the system is read from, so that a tree captured
// on another machine can be read just the same. An empty one stands for the
// running system's own: /sys, /proc, /dev.
type Roots struct {
	Sys, Proc, Dev string
}

// The running system's own.
const (
	sysRoot  = "/sys"
	procRoot = "/proc"
	devRoot  = "/dev"
)

// OwnFiles reports whether /sys and /proc are the running system's, also where
// they are given by name: what its programs and processors say is then of the
// same machine.
func (r Roots) OwnFiles() bool { return usual(r.Sys, sysRoot) && usual(r.Proc, procRoot) }

// Own reports whether all three are the running system's.
func (r Roots) Own() bool { return r.OwnFiles() && usual(r.Dev, devRoot) }

func usual(root, own string) bool { return root == "" || filepath.Clean(root) == own }

// SysPath returns the path of a file below /sys, under the root.
func (r Roots) SysPath(parts ...string) string { return under(r.Sys, sysRoot, parts) }

// ProcPath returns the path of a file below /proc, under the root.
func (r Roots) ProcPath(parts ...string) string { return under(r.Proc, procRoot, parts) }

// DevPath returns the path of a file below /dev, under the root.
func (r Roots) DevPath(parts ...string) string { return under(r.Dev, devRoot, parts) }

func under(root, fallback string, parts []string) string {
	if root == "" {
		root = fallback
	}
	return filepath.Join(append([]string{root}, parts...)...)
}
