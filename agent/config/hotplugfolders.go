package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// validateHotplugFolders wants folders that are there: a VMM is fenced in with them
// when its VM starts. What is a VM's or the agent's own is in none of them.
func (c Config) validateHotplugFolders(fault func(key, format string, args ...any)) {
	for i, folder := range c.HotplugFolders {
		key := fmt.Sprintf("hotplugFolders[%d]", i)
		if !filepath.IsAbs(folder) || filepath.Clean(folder) != folder {
			fault(key, "%q is not an absolute, clean path", folder)
			continue
		}
		if slices.Contains(c.HotplugFolders[:i], folder) {
			fault(key, "%s is listed twice", folder)
			continue
		}
		real, err := filepath.EvalSymlinks(folder)
		if err == nil {
			err = isFolder(real)
		}
		if err != nil {
			fault(key, "%v: make the folder, or leave it out", err)
			continue
		}
		for _, own := range []struct{ key, path string }{{"stateDir", c.StateDir}, {"runDir", c.RunDir}} {
			if path := resolved(own.path); within(path, real) || within(real, path) {
				fault(key, "%s holds %s (%s), or is in it: VMMs would reach what is other VMs': name a folder with nothing but disks", folder, own.key, own.path)
			}
		}
	}
}

func isFolder(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is no folder", path)
	}
	return err
}

// resolved follows the links in as much of a path as there is.
func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil || path == "/" {
		return real
	}
	return filepath.Join(resolved(filepath.Dir(path)), filepath.Base(path))
}

// within says whether a path is the folder, or beneath it.
func within(path, folder string) bool {
	below, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(below)
}
