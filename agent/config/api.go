package config

import (
	"os"

	"github.com/vmlet/vmlet/endpoints"
)

// DefaultAPIAddress is where an agent in a pod serves the API to the cluster's programs.
const DefaultAPIAddress = ":8083"

// APIConfig is how the API is served on the network, besides the socket: to
// vmlet-controller and vmlet-api alone, by mutual TLS with certificates that Kubernetes' CSR
// API gives.
type APIConfig struct {
	// Listen is an address as those of the endpoints; "0" and "off" are none. Default:
	// DefaultAPIAddress in a pod, and none elsewhere. It needs the API server
	// (Config.Kubernetes), and is off without.
	Listen string `yaml:"listen"`
}

func (c *APIConfig) complete(kubernetes bool) {
	_, pod := os.LookupEnv("KUBERNETES_SERVICE_HOST")
	switch {
	case c.Listen == "0" || c.Listen == "off":
		c.Listen = ""
	case c.Listen == "" && pod && kubernetes:
		c.Listen = DefaultAPIAddress
	}
}

// validate reports every fault.
func (c APIConfig) validate(kubernetes bool, fault func(key, format string, args ...any)) {
	if c.Listen == "" {
		return
	}
	if _, ok := endpoints.Port(c.Listen); !ok {
		fault("api.listen", "%q is no address: want HOST:PORT with an IP address or none, such as %s, or off", c.Listen, DefaultAPIAddress)
	}
	if !kubernetes {
		fault("api.listen", "its certificate is from the API server: say kubernetes.enabled: true, or off")
	}
}
