package agent

import (
	"errors"
	"os"

	"github.com/vmlet/vmlet/agent/fault"
	"github.com/vmlet/vmlet/internal/capset"
	"golang.org/x/sys/unix"
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

// Confine leaves an agent of pods' VMs with the capabilities that it needs: to
// connect to pods' sockets, whoever's they are, to go into containers by
// /proc/PID/root, and to end a shim that doesn't answer. The rest of what comes
// with a privileged container it has no use for. It doesn't return if it succeeds
// and there was something to take away: the program is executed again.
func Confine(cfg Config) error {
	cfg, err := cfg.complete()
	if err != nil || !*cfg.Pods.Enabled {
		return err
	}
	err = capset.KeepOnly(unix.CAP_DAC_OVERRIDE, unix.CAP_SYS_PTRACE, unix.CAP_KILL)
	if errors.Is(err, unix.EPERM) { // not root's, or confined by others
		cfg.Log.Warn("capabilities that the agent doesn't need are left", "error", err)
		return nil
	}
	return err
}

// podsOnly refuses VMs of the node's own where the agent has its place, its
// processes and its limits from a DaemonSet: they would end with its pod.
func (c Config) podsOnly() error {
	if c.Pods.Enabled == nil || !*c.Pods.Enabled {
		return nil
	}
	return fault.Errorf(codes.FailedPrecondition, "this agent runs the VMs of pods only: make a pod whose container runs vmlet-shim pod (or start an agent with pods.enabled: false)")
}
