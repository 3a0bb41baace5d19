package endpoints

import (
	"fmt"
	"strings"
	"testing"
)

func TestConfigDefaults(t *testing.T) {
	for _, c := range []struct {
		name   string
		config Config
		pod    bool
		want   string
	}{
		{"nowhere by itself", Config{}, false, "||"},
		{"in a pod", Config{}, true, ":8080|127.0.0.1:8081|:8082"},
		{"off", Config{Metrics: MetricsConfig{Address: "0"}, Debug: AddressConfig{"off"}, Health: AddressConfig{":9"}}, true, "||:9"},
		{"one", Config{Health: AddressConfig{"127.0.0.1:9"}}, false, "||127.0.0.1:9"},
	} {
		c.config.Complete(c.pod)
		if got := strings.Join([]string{c.config.Metrics.Address, c.config.Debug.Address, c.config.Health.Address}, "|"); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		c.config.Validate(func(key, format string, args ...any) {
			t.Errorf("%s: %s: %s", c.name, key, fmt.Sprintf(format, args...))
		})
	}
}

func TestConfigFaults(t *testing.T) {
	good := TLSConfig{Cert: "/c", Key: "/k"}
	for _, c := range []struct {
		config Config
		want   []string // "key: words"
	}{
		{Config{Metrics: MetricsConfig{Address: "8080"}}, []string{"metrics.address: no address"}},
		{Config{Metrics: MetricsConfig{Address: "node:8080"}}, []string{"metrics.address: no address"}},
		{Config{Metrics: MetricsConfig{Address: ":99999"}}, []string{"metrics.address: no address"}},
		{Config{Debug: AddressConfig{":8081"}}, []string{"debug.address: this one alone"}},
		{Config{Debug: AddressConfig{"0.0.0.0:8081"}}, []string{"debug.address: this one alone"}},
		{Config{Debug: AddressConfig{"[::]:8081"}}, []string{"debug.address: this one alone"}},
		{Config{Debug: AddressConfig{"10.0.0.1:8081"}}, []string{"debug.address: this one alone"}},
		{Config{Debug: AddressConfig{"localhost:8081"}}, []string{"debug.address: no address"}},
		{Config{Debug: AddressConfig{"[::1]:8081"}}, nil},
		{Config{Debug: AddressConfig{"127.3.2.1:8081"}}, nil},
		{Config{Metrics: MetricsConfig{Address: ":8080"}, Health: AddressConfig{":8080"}}, []string{"health.address: metrics.address"}},
		{Config{Metrics: MetricsConfig{Address: ":0"}, Health: AddressConfig{":0"}}, nil},
		{Config{Metrics: MetricsConfig{TLS: TLSConfig{Cert: "/c"}}}, []string{"metrics.tls: both"}},
		{Config{Metrics: MetricsConfig{TLS: TLSConfig{Cert: "c", Key: "/a/../k"}}}, []string{"metrics.tls.cert: absolute", "metrics.tls.key: clean"}},
		{Config{Metrics: MetricsConfig{Address: ":1", Authentication: "token"}}, []string{"metrics.authentication: needs tls"}},
		{Config{Metrics: MetricsConfig{Address: "127.0.0.1:1", Authentication: "token"}}, nil},
		{Config{Metrics: MetricsConfig{Address: ":1", Authentication: "token", TLS: good}}, nil},
		{Config{Metrics: MetricsConfig{Authentication: "basic"}}, []string{"metrics.authentication: choose"}},
	} {
		c.config.Complete(false)
		var got []string
		c.config.Validate(func(key, format string, args ...any) { got = append(got, key+": "+fmt.Sprintf(format, args...)) })
		ok := len(got) == len(c.want)
		for i := range min(len(got), len(c.want)) {
			key, words, _ := strings.Cut(c.want[i], ": ")
			ok = ok && strings.HasPrefix(got[i], key+": ") && strings.Contains(got[i], words)
		}
		if !ok {
			t.Errorf("%+v: %q, want %q", c.config, got, c.want)
		}
	}
}
