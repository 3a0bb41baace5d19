package endpoints

import (
	"net"
	"path/filepath"
	"strconv"
)

// The addresses in a pod, unless others are given.
const (
	DefaultMetricsAddress = ":8080"
	DefaultDebugAddress   = "127.0.0.1:8081"
	DefaultHealthAddress  = ":8082"
)

// Who may have the metrics.
const (
	// AuthenticationNone is anybody.
	AuthenticationNone = "none"
	// AuthenticationToken is whose token the API server knows and may get /metrics.
	AuthenticationToken = "token"
)

// Config says what is served where. An address is HOST:PORT; ":PORT" is all of the
// machine's; "0" and "off" are none.
type Config struct {
	Metrics MetricsConfig `yaml:"metrics"`
	// Debug is only available on the machine itself.
	Debug  AddressConfig `yaml:"debug"`
	Health AddressConfig `yaml:"health"`
}

// AddressConfig is an address.
type AddressConfig struct {
	Address string `yaml:"address"`
}

// MetricsConfig is how metrics are served.
type MetricsConfig struct {
	Address string    `yaml:"address"`
	TLS     TLSConfig `yaml:"tls"`
	// Authentication is AuthenticationNone, the default, or AuthenticationToken.
	Authentication string `yaml:"authentication"`
}

// TLSConfig are the paths of a certificate and its key, both PEM; none: no TLS.
// They are read again when they change.
type TLSConfig struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// Complete fills in the defaults: all of it in a pod, nothing elsewhere.
func (c *Config) Complete(pod bool) {
	for _, a := range []struct {
		address  *string
		standard string
	}{
		{&c.Metrics.Address, DefaultMetricsAddress}, {&c.Debug.Address, DefaultDebugAddress}, {&c.Health.Address, DefaultHealthAddress},
	} {
		switch {
		case *a.address == "0" || *a.address == "off":
			*a.address = ""
		case *a.address == "" && pod:
			*a.address = a.standard
		}
	}
	if c.Metrics.Authentication == "" {
		c.Metrics.Authentication = AuthenticationNone
	}
}

// Validate reports every fault of a completed configuration; the keys are below
// "endpoints".
func (c Config) Validate(fault func(key, format string, args ...any)) {
	seen := map[string]string{}
	for _, a := range []struct{ key, address string }{
		{"metrics.address", c.Metrics.Address}, {"debug.address", c.Debug.Address}, {"health.address", c.Health.Address},
	} {
		if a.address == "" {
			continue
		}
		port, ok := Port(a.address)
		if !ok {
			fault(a.key, "%q is no address: want HOST:PORT with an IP address or none, such as :8080, or off", a.address)
			continue
		}
		if other, taken := seen[a.address]; taken && port != 0 {
			fault(a.key, "%q is %s, too: each needs one of its own", a.address, other)
		}
		seen[a.address] = a.key
	}
	if d := c.Debug.Address; d != "" && !loopback(d) {
		if _, ok := Port(d); ok {
			fault("debug.address", "%q can be reached from other machines, and what is there is for this one alone: want 127.0.0.1:PORT or [::1]:PORT", d)
		}
	}
	c.Metrics.validate(fault)
}

func (m MetricsConfig) validate(fault func(key, format string, args ...any)) {
	if (m.TLS.Cert == "") != (m.TLS.Key == "") {
		fault("metrics.tls", "it needs both cert and key, or neither")
	}
	for _, p := range []struct{ key, path string }{{"cert", m.TLS.Cert}, {"key", m.TLS.Key}} {
		if p.path != "" && (!filepath.IsAbs(p.path) || filepath.Clean(p.path) != p.path) {
			fault("metrics.tls."+p.key, "%q is not an absolute, clean path", p.path)
		}
	}
	switch m.Authentication {
	case AuthenticationNone:
	case AuthenticationToken:
		if m.Address != "" && m.TLS.Cert == "" && !loopback(m.Address) {
			fault("metrics.authentication", "token needs tls, or an address on loopback: who listens on the network would have the tokens")
		}
	default:
		fault("metrics.authentication", "%q: choose none or token", m.Authentication)
	}
}

// Port is the port of an address without a name in it: names may be others' tomorrow.
func Port(address string) (int, bool) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || (host != "" && net.ParseIP(host) == nil) {
		return 0, false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return int(n), err == nil
}

func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && ip != nil && ip.IsLoopback()
}
