package vm

import (
	"bufio"
	"slices"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/agent/fault"
	nodev1 "github.com/vmlet/vmlet/proto/vmlet/node/v1"
	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestGuestAddresses(t *testing.T) {
	pod := func(binding, cidr, cidr6 string) *specv1.NetworkInterface {
		return &specv1.NetworkInterface{Name: "default", Backend: &specv1.NetworkInterface_Pod{Pod: &specv1.PodNetwork{Binding: binding, Cidr: cidr, Ipv6Cidr: cidr6}}}
	}
	user := &specv1.NetworkInterface{Name: "default", Backend: &specv1.NetworkInterface_User{User: &specv1.UserNetwork{Ports: []*specv1.PortForward{
		{HostPort: 8080, GuestPort: 80}, {Protocol: "udp", HostPort: 53, GuestPort: 53},
		{HostAddress: "0.0.0.0", HostPort: 22, GuestPort: 22}, {HostAddress: "127.0.0.7", HostPort: 9, GuestPort: 9},
	}}}}
	tap := &specv1.NetworkInterface{Name: "second", Backend: &specv1.NetworkInterface_Tap{Tap: &specv1.TapNetwork{}}}
	for name, c := range map[string]struct {
		networks []*specv1.NetworkInterface
		protocol string
		port     uint16
		want     []string
		code     codes.Code
		says     string
	}{
		"masquerade":            {[]*specv1.NetworkInterface{pod("masquerade", "", "")}, "tcp", 22, []string{"10.0.2.2:22", "[fd10:0:2::2]:22"}, 0, ""},
		"masquerade elsewhere":  {[]*specv1.NetworkInterface{pod("masquerade", "192.168.7.0/28", "fd00::/64")}, "udp", 1, []string{"192.168.7.2:1", "[fd00::2]:1"}, 0, ""},
		"bridge":                {[]*specv1.NetworkInterface{pod("bridge", "", "")}, "tcp", 22, nil, codes.Unavailable, "interface default: the guest has an address of its own"},
		"tap, then masquerade":  {[]*specv1.NetworkInterface{tap, pod("masquerade", "", "")}, "tcp", 22, []string{"10.0.2.2:22", "[fd10:0:2::2]:22"}, 0, ""},
		"user, forwarded":       {[]*specv1.NetworkInterface{user}, "tcp", 80, []string{"127.0.0.1:8080"}, 0, ""},
		"user, every address":   {[]*specv1.NetworkInterface{user}, "tcp", 22, []string{"127.0.0.1:22"}, 0, ""},
		"user, one address":     {[]*specv1.NetworkInterface{user}, "tcp", 9, []string{"127.0.0.7:9"}, 0, ""},
		"user, udp":             {[]*specv1.NetworkInterface{user}, "udp", 53, []string{"127.0.0.1:53"}, 0, ""},
		"user, other protocol":  {[]*specv1.NetworkInterface{user}, "udp", 80, nil, codes.FailedPrecondition, "for udp: 53; add 80 to the interface's ports"},
		"user, not forwarded":   {[]*specv1.NetworkInterface{user}, "tcp", 81, nil, codes.FailedPrecondition, "for tcp: 80, 22, 9; add 81 to the interface's ports"},
		"no interface":          {nil, "tcp", 22, nil, codes.FailedPrecondition, "has no network interface"},
		"an address of its own": {[]*specv1.NetworkInterface{tap}, "tcp", 22, nil, codes.Unavailable, "interface second"},
	} {
		got, err := guestAddresses(c.networks, c.protocol, c.port)
		if !slices.Equal(got, c.want) || status.Code(fault.ToStatus(err)) != c.code {
			t.Errorf("%s: %q, %v, want %q, %v", name, got, err, c.want, c.code)
		}
		if err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q in it", name, err, c.says)
		}
	}
}

// TestDialGuest: a guest that runs is dialled by its shim.
func TestDialGuest(t *testing.T) {
	_, a := withRunning(t)
	m, err := a.Get(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Change(func(vm *nodev1.VirtualMachine) {
		vm.Status.EffectiveSpec.Networks = []*specv1.NetworkInterface{{Backend: &specv1.NetworkInterface_Pod{Pod: &specv1.PodNetwork{Binding: "masquerade"}}}}
	}); err != nil {
		t.Fatal(err)
	}
	conn, err := a.DialGuest(t.Context(), "web", "", 22)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if line, err := bufio.NewReader(conn).ReadString('\n'); line != "tcp 10.0.2.2:22\n" || err != nil {
		t.Errorf("the shim dialled %q, %v", line, err)
	}
	if _, err := a.Pause(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		vm, protocol string
		port         uint32
		want         codes.Code
	}{
		"paused":       {"web", "tcp", 22, codes.FailedPrecondition},
		"no such VM":   {"none", "tcp", 22, codes.NotFound},
		"no port":      {"web", "tcp", 0, codes.InvalidArgument},
		"a large port": {"web", "tcp", 65536, codes.InvalidArgument},
		"a protocol":   {"web", "sctp", 22, codes.InvalidArgument},
	} {
		if _, err := a.DialGuest(t.Context(), c.vm, c.protocol, c.port); status.Code(fault.ToStatus(err)) != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}
