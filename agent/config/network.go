package config

// NetworkConfig is about the networks of VMs in pods.
type NetworkConfig struct {
	// Helper starts the process that connects guests to their pods' networks, which has
	// CAP_NET_ADMIN and CAP_SYS_ADMIN; default: true. Without it guests have QEMU's user-mode
	// network at most.
	Helper *bool `yaml:"helper"`
}

func (c *NetworkConfig) complete() {
	if c.Helper == nil {
		helper := true
		c.Helper = &helper
	}
}
