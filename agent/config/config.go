// Package config is the agent's configuration file: its keys, their defaults and their
// faults. Complete and Validate are pure but for what they must look at (the environment, and
// whether directories are there); it must not know what is made of a configuration.
package config

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vmlet/vmlet/agent/endpoints"
	"github.com/vmlet/vmlet/capabilities/hostdevice"
	"github.com/vmlet/vmlet/hypervisor/profile"
	"github.com/vmlet/vmlet/hypervisor/standard"
	"github.com/vmlet/vmlet/internal/strictyaml"
	"github.com/vmlet/vmlet/sysfs"
)

// The folders of an agent that is told no other.
const (
	DefaultStateDir = "/var/lib/vmlet"
	DefaultRunDir   = "/run/vmlet"
	// SocketName is the API's socket in the run folder.
	SocketName = "vmlet.sock"
)

// Config is what an agent is told: the content of its configuration file. The
// zero Config, completed by Run, is a good one.
type Config struct {
	// StateDir keeps what survives a reboot; default DefaultStateDir.
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

	QEMU            QEMUConfig            `yaml:"qemu"`
	CloudHypervisor CloudHypervisorConfig `yaml:"cloudHypervisor"`
	Users           UserRange             `yaml:"users"`
	RAM             RAMConfig             `yaml:"ram"`
	HugePages       []HugePageDir         `yaml:"hugePages"`
	Cgroup          CgroupConfig          `yaml:"cgroup"`

	// VMMs are their names in the order in which "auto" prefers them; those that it
	// doesn't have come after them. Default: vmlet's order, QEMU first.
	VMMs []string `yaml:"vmms"`
	// Hypervisor is that of specifications which name none; default: the first
	// that works, as "auto" has it. An unknown name is kvm, with a warning.
	Hypervisor string `yaml:"hypervisor"`
	// VirtualizationProfile names the parts of the stack; default: vmlet's own.
	VirtualizationProfile profile.Profile `yaml:"virtualizationProfile"`
	// ObsoleteCPUModels are not offered, as KubeVirt has them: true adds a model
	// to those that are obsolete by themselves (ObsoleteModels), false takes one away.
	ObsoleteCPUModels map[string]bool `yaml:"obsoleteCPUModels"`
	// PermittedHostDevices may be given to guests; default: none.
	PermittedHostDevices hostdevice.Permitted `yaml:"permittedHostDevices"`
	// HotplugFolders are absolute paths of folders from which VMs that run may be given
	// disks, where the VMM is fenced in when it starts (cloud-hypervisor); default: none.
	HotplugFolders []string `yaml:"hotplugFolders"`
	// DevicePlugins offers devices to the kubelet, for pods.
	DevicePlugins DevicePluginsConfig `yaml:"devicePlugins"`
	// Kubernetes is what the agent has to do with an API server.
	Kubernetes KubernetesConfig `yaml:"kubernetes"`

	// Pods runs the VMs of this node's pods.
	Pods PodsConfig `yaml:"pods"`
	// Endpoints are metrics, debug pages and health.
	Endpoints endpoints.Config `yaml:"endpoints"`

	// Version of this program, for the API.
	Version string `yaml:"-"`
	// Log takes the agent's log; default: slog's.
	Log *slog.Logger `yaml:"-"`
	// Ready, if set, is called once the API is served and every VM adopted.
	Ready func() `yaml:"-"`
}

// QEMUConfig says which QEMU is used.
type QEMUConfig struct {
	// Binary is its absolute path; default /usr/bin/qemu-system-ARCH.
	Binary string `yaml:"binary"`
}

// CloudHypervisorConfig says which cloud-hypervisor is used.
type CloudHypervisorConfig struct {
	// Binary is its absolute path; default: /usr/local/bin/cloud-hypervisor,
	// else that in /usr/bin.
	Binary string `yaml:"binary"`
	// Firmware is the absolute path of what boots VMs from their disks: the
	// program's own build of edk2 (CLOUDHV.fd), or rust-hypervisor-firmware.
	// Default: the first that is there of cloudhypervisor.DefaultFirmware.
	Firmware string `yaml:"firmware"`
}

// firmware is a list of one; nil: the default.
func (c CloudHypervisorConfig) firmware() []string {
	if c.Firmware == "" {
		return nil
	}
	return []string{c.Firmware}
}

// UserRange is a range of user ids, and of group ids of the same numbers, of
// which each running VM is given one. Agents side by side on a machine should
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
	or(&c.StateDir, DefaultStateDir)
	or(&c.RunDir, DefaultRunDir)
	or(&c.Socket, filepath.Join(c.RunDir, SocketName))
	or(&c.QEMU.Binary, "/usr/bin/qemu-system-"+qemuArch(runtime.GOARCH))
	if h, ok := c.VirtualizationProfile.Hypervisor(standard.Registry(sysfs.Roots{})); ok {
		or(&c.Hypervisor, h)
	}
	if v, ok := c.VirtualizationProfile.VMM(); ok && len(c.VMMs) == 0 {
		c.VMMs = []string{v}
	}
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
	_, pod := os.LookupEnv("KUBERNETES_SERVICE_HOST")
	c.Endpoints.Complete(pod)
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c, nil
}

// qemuArch is QEMU's name for one of Go's architectures.
func qemuArch(arch string) string {
	switch arch {
	case "amd64":
		return "x86_64"
	case "arm64":
		return "aarch64"
	}
	return arch
}
