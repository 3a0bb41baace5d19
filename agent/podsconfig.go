package agent

import (
	"os"

	"google.golang.org/grpc/codes"
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

// podsOnly refuses VMs of the node's own where the agent has its place, its
// processes and its limits from a DaemonSet: they would end with its pod.
func (c Config) podsOnly() error {
	if c.Pods.Enabled == nil || !*c.Pods.Enabled {
		return nil
	}
	return failf(codes.FailedPrecondition, "this agent runs the VMs of pods only: make a pod whose container runs vmlet-shim pod (or start an agent with pods.enabled: false)")
}
