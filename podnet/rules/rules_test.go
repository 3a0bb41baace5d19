package rules

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/vmlet/vmlet/podnet"
	"github.com/vmlet/vmlet/podnet/podnettest"
)

var update = flag.Bool("update", false, "write the golden files")

func guests() map[string]Guest {
	ports := []podnet.Ports{{Protocol: "tcp", First: 80, Last: 80}, {Protocol: "udp", First: 5000, Last: 5010}}
	v4 := Guest{
		Interface: "eth0", Bridge: "k6t-eth0", Network: netip.MustParsePrefix("10.0.2.0/24"),
		Addresses: []netip.Addr{netip.MustParseAddr("10.244.0.5")},
	}
	v6 := v4
	v6.Network, v6.Addresses = netip.MustParsePrefix("fd10:0:2::/120"), []netip.Addr{netip.MustParseAddr("fd00:10:244::5")}
	v4Ports, v6Ports := v4, v6
	v4Ports.Ports, v6Ports.Ports = ports, ports
	return map[string]Guest{"ipv4": v4, "ipv6": v6, "ipv4-ports": v4Ports, "ipv6-ports": v6Ports}
}

// TestGolden: a change of the rules is seen as nft(8) would show it.
func TestGolden(t *testing.T) {
	for name, g := range guests() {
		t.Run(name, func(t *testing.T) {
			path, got := filepath.Join("testdata", name+".nft"), For(g).String()
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// most is a guest with all that a plan and a pod may have.
func most(g Guest) Guest {
	g.Ports, g.Addresses = nil, nil
	for n := range podnet.MaxPorts {
		g.Ports = append(g.Ports, podnet.Ports{Protocol: []string{"tcp", "udp"}[n%2], First: uint16(100 * (n + 1)), Last: uint16(100*(n+1) + 50)})
	}
	for a := g.Network.Addr(); len(g.Addresses) < podnet.MaxAddresses; {
		a = a.Next()
		g.Addresses = append(g.Addresses, a)
	}
	return g
}

// TestApply: the kernel takes each table, again, and without the family that went.
func TestApply(t *testing.T) {
	ns, all := podnettest.New(t), guests()
	for _, tables := range [][]Table{{For(all["ipv4"]), For(all["ipv6"])}, {For(all["ipv4-ports"]), For(all["ipv6-ports"])}, {For(most(all["ipv4"])), For(most(all["ipv6"]))}, {For(all["ipv4"])}, nil} {
		ns.Do(func() error { return Apply(tables...) })
		for _, family := range []bool{false, true} {
			want := 0
			for _, table := range tables {
				if table.IPv6 != family {
					continue
				}
				for _, c := range table.Chains {
					want += len(c.Rules)
				}
			}
			ns.Do(func() error {
				got, err := count(family)
				if got != want {
					t.Errorf("IPv6 %v: the kernel has %d rules, want %d", family, got, want)
				}
				return err
			})
		}
	}
}
