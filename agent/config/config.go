// Package config reads the agent's configuration file, fills in defaults and reports faults.
// Complete and Validate look at the environment and at whether directories exist, and change
// nothing. The package must not know what the agent makes of a configuration. Start reading
// at Config.
package config

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/vmlet/vmlet/capabilities"
	"github.com/vmlet/vmlet/capabilities/sources"
	"github.com/vmlet/vmlet/endpoints"
	"github.com/vmlet/vmlet/internal/strictyaml"
)

// Defaults, beside sources.DefaultStateDir.
const (
	DefaultRunDir = "/run/vmlet"
	// SocketName is the API's socket in the run folder.
	SocketName = "vmlet.sock"
)

// Config is the content of an agent's configuration file. The
// zero Config, completed by Complete, is a good one.
type Config struct {
	// StateDir keeps what survives a reboot; default sources.DefaultStateDir.
	StateDir string `yaml:"stateDir"`
	// RunDir keeps what does not; default DefaultRunDir.
	RunDir string `yaml:"runDir"`
	// Socket of the API; default SocketName in RunDir.
	Socket string `yaml:"socket"`
	// AllowedUsers are user ids that may use the API, besides root and the
	// agent's own. Who may use it is as good as root on this machine.
	AllowedUsers []uint32 `yaml:"allowedUsers"`
	// Shim is the path of vmlet-shim; default: beside the running program.
	Shim string `yaml:"shim"`

	// Config of the sources is what the node can do, which other programs find out, too.
	sources.Config `yaml:",inline"`

	Users     UserRange     `yaml:"users"`
	RAM       RAMConfig     `yaml:"ram"`
	HugePages []HugePageDir `yaml:"hugePages"`
	Cgroup    CgroupConfig  `yaml:"cgroup"`

	// HotplugFolders are absolute paths of folders from which VMs that run may be given
	// disks, where the VMM is fenced in when it starts (cloud-hypervisor); default: none.
	HotplugFolders []string `yaml:"hotplugFolders"`
	// DevicePlugins offers devices to the kubelet, for pods.
	DevicePlugins DevicePluginsConfig `yaml:"devicePlugins"`
	// Kubernetes is what the agent has to do with an API server.
	Kubernetes KubernetesConfig `yaml:"kubernetes"`

	// Pods runs the VMs of this node's pods.
	Pods PodsConfig `yaml:"pods"`
	// Network is that of pods' VMs.
	Network NetworkConfig `yaml:"network"`
	// API is served to the cluster's programs.
	API APIConfig `yaml:"api"`
	// Endpoints are metrics, debug pages and health.
	Endpoints endpoints.Config `yaml:"endpoints"`

	// Version of this program, for the API.
	Version string `yaml:"-"`
	// Log takes the agent's log; default: slog's.
	Log *slog.Logger `yaml:"-"`
	// Ready, if set, is called once the API is served and every VM adopted.
	Ready func() `yaml:"-"`
}

// UserRange is a range of user ids, and of group ids of the same numbers.
// Each running VM gets one of them. Agents side by side on a machine should
// have ranges of their own.
//
// The default, 65536 from 2100000000 (0x7D2B7500), is free by systemd's table
// (UIDs-GIDs.md: nothing is assigned from 0x70000000 up to the foreign range at
// 0x7FFE0000), above what /etc/subuid, user namespaces of container runtimes,
// OpenShift's projects (1000000000 to 1999999999) and the id mapping of SSSD
// (up to 2000200000) hand out, and below 2^31, which some programs can't pass.
type UserRange struct {
	First uint32 `yaml:"first"`
	Count uint32 `yaml:"count"`
}

// RAMConfig is the tmpfs that guest RAM is in.
type RAMConfig struct {
	// Size as tmpfs takes it (tmpfs(5)): "50%", "64g". Default "90%": guests that fill
	// their memory end one of them, and not the machine.
	Size string `yaml:"size"`
	// Huge is when huge pages are used: "never" (the default), "within_size",
	// "advise" or "always".
	Huge string `yaml:"huge"`
}

// HugePageDir is a hugetlbfs for VMs that ask for huge pages of that size.
// Those that are mounted are found; this is for choosing among several.
type HugePageDir struct {
	PageSize string `yaml:"pageSize"`
	Path     string `yaml:"path"`
}

// CgroupConfig is where VMs' cgroups are.
type CgroupConfig struct {
	// Parent is the path of the cgroup in which each VM has its own. Default:
	// under systemd with cgroup v2 vmlet.slice, in which VMs have scopes; with
	// cgroup v2 elsewhere /vmlet; with cgroup v1 vmlet below the agent's own. An
	// agent with another run folder than the usual has vmlet-XXXXXXXX instead.
	Parent string `yaml:"parent"`
	// Required refuses to start a VM that can't have a cgroup. Default: it
	// starts, with a warning.
	Required bool `yaml:"required"`
}

// Load reads a configuration file. All that is unknown or doesn't fit is
// an error that names its line and its key. An empty path is the defaults.
func Load(path string) (Config, error) {
	var c Config
	if path == "" {
		return c, nil
	}
	if err := strictyaml.Load(path, &c); err != nil {
		return Config{}, fmt.Errorf("the agent's configuration: %w", err)
	}
	return c, nil
}

// Complete returns the configuration with its defaults filled in.
func (c Config) Complete() (Config, error) {
	or := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	or(&c.StateDir, sources.DefaultStateDir)
	or(&c.RunDir, DefaultRunDir)
	or(&c.Socket, filepath.Join(c.RunDir, SocketName))
	c.Config = c.Config.Complete()
	or(&c.RAM.Size, "90%")
	or(&c.RAM.Huge, "never")
	if c.Shim == "" {
		self, err := os.Executable()
		if err != nil {
			return c, fmt.Errorf("shim: finding the folder of this program: %w", err)
		}
		c.Shim = filepath.Join(filepath.Dir(self), "vmlet-shim")
	}
	if c.Users == (UserRange{}) {
		c.Users = UserRange{First: 2_100_000_000, Count: 65536}
	}
	c.DevicePlugins.complete()
	c.Kubernetes.complete()
	c.Pods.complete(*c.Kubernetes.Enabled)
	c.Network.complete()
	c.API.complete(*c.Kubernetes.Enabled)
	_, pod := os.LookupEnv("KUBERNETES_SERVICE_HOST")
	c.Endpoints.Complete(pod)
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c, nil
}

// OwnSources are those of a completed configuration on this machine.
func (c Config) OwnSources() capabilities.Sources {
	return c.Sources(sources.Options{KeepIn: c.StateDir, Version: c.Version, Log: c.Log})
}
