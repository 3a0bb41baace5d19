package server_test

import (
	"os"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/test/podlink"
)

// TestRouterAdvertisement: the guest's kernel takes over all that it knows, whether it
// asks or not.
func TestRouterAdvertisement(t *testing.T) {
	for name, asks := range map[string]bool{"asked": true, "unasked": false} {
		t.Run(name, func(t *testing.T) {
			l := newLink(t)
			if asks {
				l.serve(masquerade())
				l.Up()
				l.Await("an answer", func() bool { return strings.Contains(l.log.String(), "router advertisement") })
			} else {
				l.Guest(func() error { return podlink.Set("default", "router_solicitations", 0) })
				l.Guest(func() error { return podlink.Set("eth0", "router_solicitations", 0) })
				l.Up()
				l.serve(masquerade())
			}
			l.Await("a default route", func() bool { return strings.Contains(l.routes(), "default via fe80::1 dev eth0") })
			if got := l.routes(); !strings.Contains(got, "fd10:0:2::/120 dev eth0") {
				t.Errorf("the network is not on the link:\n%s", got)
			}
			if got := l.setting("eth0", "mtu"); got != "1450" {
				t.Errorf("MTU %s instead of 1450", got)
			}
			if got := l.Address("fd10:"); got != "" {
				t.Errorf("the guest has given itself %s", got)
			}
			if asked := strings.Contains(l.log.String(), "router advertisement"); asked != asks {
				t.Errorf("asked: %v instead of %v", asked, asks)
			}
		})
	}
}

// setting returns what the guest's kernel does with IPv6 on an interface.
func (l *link) setting(on, name string) (value string) {
	l.t.Helper()
	l.Guest(func() error {
		b, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + on + "/" + name)
		value = strings.TrimSpace(string(b))
		return err
	})
	return value
}

func (l *link) routes() string { return l.Run("/usr/sbin/ip", "-6", "route") }
