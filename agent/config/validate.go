package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"

	"github.com/vmlet/vmlet/internal/unixsocket"
)

// Check reports every fault of a configuration, and runs nothing.
func (c Config) Check() error {
	c, err := c.Complete()
	if err != nil {
		return err
	}
	return c.Validate()
}

// Validate reports every fault of a completed configuration.
func (c Config) Validate() error {
	var errs []error
	fault := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("configuration: "+key+": "+format, args...))
	}
	paths := []struct{ key, path string }{
		{"stateDir", c.StateDir}, {"runDir", c.RunDir}, {"socket", c.Socket}, {"shim", c.Shim},
	}
	for i, h := range c.HugePages {
		paths = append(paths, struct{ key, path string }{fmt.Sprintf("hugePages[%d].path", i), h.Path})
	}
	for _, p := range paths {
		if !filepath.IsAbs(p.path) || filepath.Clean(p.path) != p.path {
			fault(p.key, "%q is not an absolute, clean path", p.path)
		}
	}
	if len(c.Socket) > unixsocket.MaxPath {
		fault("socket", "%q has %d bytes: a socket's path has %d at most", c.Socket, len(c.Socket), unixsocket.MaxPath)
	}
	if c.StateDir == c.RunDir {
		fault("runDir", "%q is stateDir too: what doesn't survive a reboot needs a folder of its own", c.RunDir)
	}
	if last := uint64(c.Users.First) + uint64(c.Users.Count); c.Users.First < 1 || c.Users.Count < 1 || last > 1<<31 {
		fault("users", "first %d and count %d: the range must have an id, be above 0 and end below 2147483648", c.Users.First, c.Users.Count)
	}
	// What follows goes into a mount option, where a comma begins another.
	if !regexp.MustCompile(`^[0-9]+[kmgKMG%]?$`).MatchString(c.RAM.Size) {
		fault("ram.size", "%q: a number of bytes, with k, m or g after it, or a percentage of the machine's memory", c.RAM.Size)
	}
	switch c.RAM.Huge {
	case "never", "within_size", "advise", "always":
	default:
		fault("ram.huge", "%q: choose never, within_size, advise or always", c.RAM.Huge)
	}
	if p := c.Cgroup.Parent; p != "" && (!filepath.IsAbs(p) || filepath.Clean(p) != p || p == "/") {
		fault("cgroup.parent", "%q: an absolute path from the root of the cgroups, and not the root: /vmlet", p)
	}
	c.Config.Validate(fault)
	c.validateHotplugFolders(fault)
	c.validateDevicePlugins(fault)
	c.Endpoints.Validate(func(key, format string, args ...any) { fault("endpoints."+key, format, args...) })
	if *c.Pods.Enabled && !*c.Kubernetes.Enabled {
		fault("pods.enabled", "whose pod a VM's is, says the API server: it needs kubernetes.enabled")
	}
	c.Kubernetes.validate(fault)
	c.API.validate(*c.Kubernetes.Enabled, fault)
	return errors.Join(errs...)
}
