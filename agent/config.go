package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"

	"go.yaml.in/yaml/v3"
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

	QEMU      QEMUConfig    `yaml:"qemu"`
	Users     UserRange     `yaml:"users"`
	RAM       RAMConfig     `yaml:"ram"`
	HugePages []HugePageDir `yaml:"hugePages"`
	Cgroup    CgroupConfig  `yaml:"cgroup"`

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
	// Size as tmpfs takes it (tmpfs(5)): "50%", "64g". Default "100%": what
	// limits a VM is its own memory size.
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
	// Parent is the path of the cgroup below which each VM has its own.
	// All that is in it is this agent's. Default: the agent's own where that is
	// delegated to it (systemd's Delegate=), else /vmlet; with cgroup v1, vmlet
	// below the agent's own. An agent with another run folder than the usual has
	// vmlet-XXXXXXXX instead.
	Parent string `yaml:"parent"`
	// Required refuses to start a VM that can't have a cgroup. Default: it
	// starts, with a warning.
	Required bool `yaml:"required"`
}

// LoadConfig reads a configuration file. An unknown key is an error that names
// its line. An empty path is the defaults.
func LoadConfig(path string) (Config, error) {
	var c Config
	if path == "" {
		return c, nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("the agent's configuration: %w", err)
	}
	d := yaml.NewDecoder(bytes.NewReader(content))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return Config{}, fmt.Errorf("%s: it has a second document: an agent's configuration is one", path)
	}
	return c, nil
}

// complete fills in the defaults.
func (c Config) complete() (Config, error) {
	or := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	or(&c.StateDir, DefaultStateDir)
	or(&c.RunDir, DefaultRunDir)
	or(&c.Socket, filepath.Join(c.RunDir, SocketName))
	or(&c.QEMU.Binary, "/usr/bin/qemu-system-"+qemuArch(runtime.GOARCH))
	or(&c.RAM.Size, "100%")
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

// maxSocketPath is what a socket's address holds (107 bytes and a NUL, unix(7)),
// less the ending under which it is bound first.
const maxSocketPath = 107 - len(newSocketSuffix)

// validate reports every fault of a completed configuration.
func (c Config) validate() error {
	var errs []error
	fault := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("configuration: "+key+": "+format, args...))
	}
	paths := []struct{ key, path string }{
		{"stateDir", c.StateDir}, {"runDir", c.RunDir}, {"socket", c.Socket}, {"shim", c.Shim}, {"qemu.binary", c.QEMU.Binary},
	}
	for i, h := range c.HugePages {
		paths = append(paths, struct{ key, path string }{fmt.Sprintf("hugePages[%d].path", i), h.Path})
	}
	for _, p := range paths {
		if !filepath.IsAbs(p.path) || filepath.Clean(p.path) != p.path {
			fault(p.key, "%q is not an absolute, clean path", p.path)
		}
	}
	if len(c.Socket) > maxSocketPath {
		fault("socket", "%q has %d bytes: a socket's path has %d at most", c.Socket, len(c.Socket), maxSocketPath)
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
	return errors.Join(errs...)
}
