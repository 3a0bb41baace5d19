package config

import (
	"os"
)

// PodsConfig is about VMs in this node's pods.
type PodsConfig struct {
	// Enabled runs the VMs of pods, and no others; default: in a pod, which
	// Kubernetes tells by a variable of the environment, and not else. It needs
	// the API server (Config.Kubernetes), and is off without.
	Enabled *bool `yaml:"enabled"`
}

func (c *PodsConfig) complete(kubernetes bool) {
	if c.Enabled == nil {
		_, pod := os.LookupEnv("KUBERNETES_SERVICE_HOST")
		pod = pod && kubernetes
		c.Enabled = &pod
	}
}
