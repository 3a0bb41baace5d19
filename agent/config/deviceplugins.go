package config

import (
	"os"
	"path/filepath"

	"github.com/vmlet/vmlet/deviceplugin"
	"github.com/vmlet/vmlet/deviceplugin/kind"
	"github.com/vmlet/vmlet/hypervisor/standard"
)

// DevicePluginsConfig is what pods of the node can ask for.
type DevicePluginsConfig struct {
	// Enabled offers devices to the kubelet; default: in a pod, which Kubernetes
	// tells by a variable of the environment, and not else.
	Enabled *bool `yaml:"enabled"`
	// KubeletDir is the kubelet's --root-dir; default deviceplugin.DefaultKubeletDir.
	KubeletDir string `yaml:"kubeletDir"`
	// Counts is how many pods may have a device at once, by the last part of the
	// resource's name: "kvm".
	Counts map[string]int `yaml:"counts"`
	// CDI are devices of the container device interface that are given in place
	// of device nodes, by resource.
	CDI map[string]string `yaml:"cdi"`
	// QGSSocket is of TDX' quote generation service, PRHelperSocket of QEMU's
	// helper for persistent reservations.
	QGSSocket      string `yaml:"qgsSocket"`
	PRHelperSocket string `yaml:"prHelperSocket"`
}

func (c *DevicePluginsConfig) complete() {
	if c.Enabled == nil {
		_, pod := os.LookupEnv("KUBERNETES_SERVICE_HOST")
		c.Enabled = &pod
	}
	if c.KubeletDir == "" {
		c.KubeletDir = deviceplugin.DefaultKubeletDir
	}
}

// Folder is the kubelet's for device plugins.
func (c DevicePluginsConfig) Folder() string { return deviceplugin.FolderIn(c.KubeletDir) }

// validateDevicePlugins reports every fault.
func (c Config) validateDevicePlugins(fault func(key, format string, args ...any)) {
	at := func(key, format string, args ...any) { fault("devicePlugins."+key, format, args...) }
	p := c.DevicePlugins
	if !filepath.IsAbs(p.KubeletDir) || filepath.Clean(p.KubeletDir) != p.KubeletDir {
		at("kubeletDir", "%q is not an absolute, clean path", p.KubeletDir)
	} else if err := deviceplugin.CheckFolder(p.Folder()); err != nil {
		at("kubeletDir", "%v", err)
	}
	c.DeviceKinds().Validate(at)
}

// DeviceKinds are the devices that the kubelet is offered.
func (c Config) DeviceKinds() kind.Config {
	p := c.DevicePlugins
	return kind.Config{
		Hypervisors: standard.Registry().All(), Permitted: c.PermittedHostDevices,
		Counts: p.Counts, CDI: p.CDI, QGSSocket: p.QGSSocket, PRHelperSocket: p.PRHelperSocket,
	}
}
