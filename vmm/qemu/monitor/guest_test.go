package monitor

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/vmlet/vmlet/vmm"
	"github.com/vmlet/vmlet/vmm/qemu/qga"
	"github.com/vmlet/vmlet/vmm/qemu/qga/qgatest"
)

// asked has a guest agent that answers so, by command; what has no answer is refused.
func asked(t *testing.T, answers map[string]string) (vmm.Guest, error) {
	t.Helper()
	d, err := inspectedWith(t, answers)
	return d.Guest, err
}

func inspectedWith(t *testing.T, answers map[string]string) (vmm.GuestDetails, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	agent, err := qga.New(ctx, qgatest.Serve(t, func(command string, _ json.RawMessage) string {
		if answer, has := answers[command]; has {
			return strings.ReplaceAll(answer, "\n", " ") // the agent sends one line
		}
		return qgatest.NotFound
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	return detailsOf(ctx, agent)
}

const interfaces = `{"return": [
	{"name": "lo", "hardware-address": "00:00:00:00:00:00", "ip-addresses": [{"ip-address-type": "ipv4", "ip-address": "127.0.0.1", "prefix": 8}]},
	{"name": "enp1s0", "hardware-address": "02:00:00:00:00:01", "ip-addresses": [{"ip-address": "10.0.2.2"}, {"ip-address": "fe80::1%enp1s0"}, {"ip-address": "not one"}]},
	{"name": "tun0", "hardware-address": "no MAC"},
	{"hardware-address": "02:00:00:00:00:02"}]}`

const saysNone = "the guest agent does not say which commands it has"

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
			AgentVersion: "9.2.0", Hostname: "web-1", Interfaces: networks, Unsupported: "the guest agent lacks " + strings.Join(required(), ", "),
			OS: vmm.GuestOS{ID: "debian", Name: "Debian GNU/Linux", PrettyName: "Debian GNU/Linux 13 (trixie)", Version: "13 (trixie)", VersionID: "13", KernelRelease: "6.12.1-amd64", KernelVersion: "#1 SMP", Machine: "x86_64"},
		}},
		{"little", map[string]string{"guest-info": `{"return": {"version": "2.0"}}`}, vmm.Guest{AgentVersion: "2.0", Unsupported: saysNone}},
		{"unfit", map[string]string{
			"guest-info":                   `{"return": {"version": 9}}`,
			"guest-get-host-name":          `{"return": ["web-1"]}`,
			"guest-get-osinfo":             `{"return": {"id": "a\u0000b\nc"}}`,
			"guest-network-get-interfaces": interfaces,
		}, vmm.Guest{Interfaces: networks, OS: vmm.GuestOS{ID: "abc"}, Unsupported: saysNone}},
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
	if _, err := asked(t, map[string]string{"guest-info": strings.Repeat(" ", qga.MaxReply) + `{"return": {}}`}); err == nil {
		t.Error("an endless reply is no error")
	}
	if _, err := asked(t, map[string]string{"guest-info": "this is no JSON"}); err == nil {
		t.Error("another protocol is no error")
	}
}

// TestDetails: all that an agent says, and a frozen one says nothing.
func TestDetails(t *testing.T) {
	var commands []string
	for _, name := range required() {
		commands = append(commands, fmt.Sprintf(`{"name": %q, "enabled": true, "success-response": true}`, name))
	}
	answers := map[string]string{
		"guest-info":            `{"return": {"version": "9.2.0", "supported_commands": [` + strings.Join(commands, ",") + `]}}`,
		"guest-fsfreeze-status": `{"return": "thawed"}`,
		"guest-get-timezone":    `{"return": {"zone": "CET", "offset": 3600}}`,
		"guest-get-users":       `{"return": [{"login-time": 1700000000.25, "user": "ann"}, {"login-time": -1e300, "user": "bob", "domain": "CORP"}]}`,
		"guest-get-fsinfo": `{"return": [{"name": "vda1", "total-bytes": 1000, "mountpoint": "/", "type": "ext4", "used-bytes": 900,
			"disk": [{"serial": "s1", "bus-type": "virtio", "bus": 0, "unit": 0, "target": 0, "pci-controller": {}}]},
			{"name": "x", "mountpoint": "/x", "type": "y", "disk": [], "total-bytes": 1e30, "used-bytes": -4}]}`,
	}
	got, err := inspectedWith(t, answers)
	if err != nil {
		t.Fatal(err)
	}
	if got.Unsupported != "" || len(got.Commands) != len(required()) || got.Commands[0] != (vmm.GuestCommand{Name: "guest-ping", Enabled: true}) {
		t.Errorf("unsupported %q, commands %v", got.Unsupported, got.Commands)
	}
	if got.Timezone != "CET, 3600" {
		t.Errorf("time zone %q", got.Timezone)
	}
	wantUsers := []vmm.GuestUser{{Name: "ann", Login: time.UnixMilli(1700000000250).UTC()}, {Name: "bob", Domain: "CORP"}}
	if !reflect.DeepEqual(got.Users, wantUsers) {
		t.Errorf("users %v, want %v", got.Users, wantUsers)
	}
	wantFS := []vmm.GuestFileSystem{
		{Device: "vda1", MountPoint: "/", Type: "ext4", Used: 900, Total: 1000, Disks: []vmm.GuestDisk{{Serial: "s1", Bus: "virtio"}}},
		{Device: "x", MountPoint: "/x", Type: "y"},
	}
	if !reflect.DeepEqual(got.FileSystems, wantFS) {
		t.Errorf("file systems %v, want %v", got.FileSystems, wantFS)
	}
	answers["guest-fsfreeze-status"] = `{"return": "frozen"}`
	got, err = inspectedWith(t, answers)
	if err != nil || !got.Frozen || got.Users != nil || got.AgentVersion != "9.2.0" {
		t.Errorf("frozen: %+v, %v", got, err)
	}
}

// TestDetailsBounded: lists are as long as they may be, and no longer.
func TestDetailsBounded(t *testing.T) {
	many := func(one string) string { return `{"return": [` + strings.Repeat(one+",", 400) + one + `]}` }
	got, err := inspectedWith(t, map[string]string{
		"guest-info":       `{"return": {"supported_commands": [` + strings.Repeat(`{"name": "a"},`, 1000) + `{}]}}`,
		"guest-get-users":  many(`{"user": "a"}`),
		"guest-get-fsinfo": many(`{"name": "a", "disk": [` + strings.Repeat(`{},`, 20) + `{}]}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []struct {
		what      string
		got, want int
	}{
		{"commands", len(got.Commands), vmm.MaxGuestCommands},
		{"users", len(got.Users), vmm.MaxGuestUsers},
		{"file systems", len(got.FileSystems), vmm.MaxGuestFileSystems},
		{"disks", len(got.FileSystems[0].Disks), vmm.MaxGuestDisks},
	} {
		if n.got != n.want {
			t.Errorf("%d %s, want %d", n.got, n.what, n.want)
		}
	}
}

// FuzzGuest: whatever the guest answers, what is kept of it is bounded and fit to be sent on.
func FuzzGuest(f *testing.F) {
	f.Add(`{"return": [{"name": "a", "disk": [{}], "user": "b", "login-time": 1e9, "total-bytes": -1}]}`)
	f.Add(`{"return": {"version": "1", "zone": "\ud800", "offset": 1, "supported_commands": [{"name": "\u0000"}]}}`)
	f.Add(interfaces)
	f.Fuzz(func(t *testing.T, answer string) {
		if strings.TrimSpace(answer) == "" {
			t.Skip() // an empty line is waited out
		}
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			_ = qgatest.Run(theirs, func(string, json.RawMessage) string { return strings.ReplaceAll(answer, "\n", " ") + " " })
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		agent, err := qga.New(ctx, ours)
		if err != nil {
			t.Fatal(err)
		}
		defer agent.Close()
		d, err := detailsOf(ctx, agent)
		if err != nil {
			return
		}
		texts := []string{d.Hostname, d.AgentVersion, d.OS.Name}
		for _, fs := range d.FileSystems {
			texts = append(texts, fs.Device, fs.MountPoint, fs.Type)
		}
		for _, u := range d.Users {
			texts = append(texts, u.Name, u.Domain)
		}
		for _, text := range texts {
			if len(text) > vmm.MaxGuestText || !utf8.ValidString(text) {
				t.Errorf("%q is kept", text)
			}
		}
		if len(d.Users) > vmm.MaxGuestUsers || len(d.FileSystems) > vmm.MaxGuestFileSystems || len(d.Commands) > vmm.MaxGuestCommands {
			t.Errorf("%d users, %d file systems and %d commands are kept", len(d.Users), len(d.FileSystems), len(d.Commands))
		}
	})
}
