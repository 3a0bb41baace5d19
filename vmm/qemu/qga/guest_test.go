package qga

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/vmm"
)

// asked has a guest agent that answers so, by command; what has no answer is refused.
func asked(t *testing.T, answers map[string]string) (vmm.Guest, error) {
	t.Helper()
	conn := serve(t, func(r request) string {
		if r.Execute == "guest-sync-delimited" {
			return inStep(r)
		}
		if answer, has := answers[r.Execute]; has {
			return strings.ReplaceAll(answer, "\n", " ") + "\n" // the agent sends one line
		}
		return `{"error": {"class": "CommandNotFound", "desc": "no such command"}}` + "\n"
	})
	c, err := New(testContext(t), conn)
	if err != nil {
		t.Fatal(err)
	}
	return c.Guest(testContext(t))
}

const interfaces = `{"return": [
	{"name": "lo", "hardware-address": "00:00:00:00:00:00", "ip-addresses": [{"ip-address-type": "ipv4", "ip-address": "127.0.0.1", "prefix": 8}]},
	{"name": "enp1s0", "hardware-address": "02:00:00:00:00:01", "ip-addresses": [{"ip-address": "10.0.2.2"}, {"ip-address": "fe80::1%enp1s0"}, {"ip-address": "not one"}]},
	{"name": "tun0", "hardware-address": "no MAC"},
	{"hardware-address": "02:00:00:00:00:02"}]}`

// TestGuest: what the agent says, and what it does not.
func TestGuest(t *testing.T) {
	networks := []vmm.GuestInterface{
		{Name: "lo", MAC: "00:00:00:00:00:00", Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}},
		{Name: "enp1s0", MAC: "02:00:00:00:00:01", Addresses: []netip.Addr{netip.MustParseAddr("10.0.2.2"), netip.MustParseAddr("fe80::1")}},
		{Name: "tun0"},
	}
	for _, test := range []struct {
		name    string
		answers map[string]string
		want    vmm.Guest
	}{
		{"all", map[string]string{
			"guest-info":                   `{"return": {"version": "9.2.0", "supported_commands": [{"name": "guest-exec", "enabled": false}]}}`,
			"guest-get-host-name":          `{"return": {"host-name": "web-1"}}`,
			"guest-get-osinfo":             `{"return": {"id": "debian", "name": "Debian GNU/Linux", "pretty-name": "Debian GNU/Linux 13 (trixie)", "version": "13 (trixie)", "version-id": "13", "kernel-release": "6.12.1-amd64", "kernel-version": "#1 SMP", "machine": "x86_64"}}`,
			"guest-network-get-interfaces": interfaces,
		}, vmm.Guest{
			AgentVersion: "9.2.0", Hostname: "web-1", Interfaces: networks,
			OS: vmm.GuestOS{ID: "debian", Name: "Debian GNU/Linux", PrettyName: "Debian GNU/Linux 13 (trixie)", Version: "13 (trixie)", VersionID: "13", KernelRelease: "6.12.1-amd64", KernelVersion: "#1 SMP", Machine: "x86_64"},
		}},
		{"little", map[string]string{"guest-info": `{"return": {"version": "2.0"}}`}, vmm.Guest{AgentVersion: "2.0"}},
		{"unfit", map[string]string{
			"guest-info":                   `{"return": {"version": 9}}`,
			"guest-get-host-name":          `{"return": ["web-1"]}`,
			"guest-get-osinfo":             `{"return": {"id": "a\u0000b\nc"}}`,
			"guest-network-get-interfaces": interfaces,
		}, vmm.Guest{Interfaces: networks, OS: vmm.GuestOS{ID: "abc"}}},
	} {
		got, err := asked(t, test.answers)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: got\n%+v, want\n%+v", test.name, got, test.want)
		}
	}
}

// TestGuestBounded: a hostile guest's words are bounded, or it is listened to no more.
func TestGuestBounded(t *testing.T) {
	many := strings.Repeat(`{"name": "x", "ip-addresses": [`+strings.Repeat(`{"ip-address": "::1"},`, 40)+`{}]},`, 40)
	got, err := asked(t, map[string]string{
		"guest-get-host-name":          fmt.Sprintf(`{"return": {"host-name": %q}}`, strings.Repeat("ü", 1000)),
		"guest-network-get-interfaces": `{"return": [` + many + `{}]}`,
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(got.Hostname); n == 0 || n > vmm.MaxGuestText {
		t.Errorf("a host name of %d bytes", n)
	}
	if n := len(got.Interfaces); n != vmm.MaxGuestInterfaces {
		t.Fatalf("%d interfaces", n)
	}
	if n := len(got.Interfaces[0].Addresses); n != vmm.MaxGuestAddresses {
		t.Errorf("%d addresses", n)
	}
	if _, err := asked(t, map[string]string{"guest-info": strings.Repeat(" ", MaxReply) + `{"return": {}}`}); err == nil {
		t.Error("an endless reply is no error")
	}
	if _, err := asked(t, map[string]string{"guest-info": "this is no JSON"}); err == nil {
		t.Error("another protocol is no error")
	}
}
