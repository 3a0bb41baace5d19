package podnet

import (
	"encoding/json"
	"strings"
	"testing"
)

// FuzzNetworkPlan: whatever passes Check leads nowhere but to the interfaces that it names.
func FuzzNetworkPlan(f *testing.F) {
	good, err := json.Marshal(Plan{Networks: []Network{good(), {Binding: Bridge, Interface: "net1"}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"networks":[{"binding":"bridge","interface":"../eth0"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var p Plan
		if json.Unmarshal(text, &p) != nil || p.Check() != nil {
			return
		}
		for _, n := range p.Networks {
			for _, name := range []string{n.Interface, n.BridgeName(), n.NICName(), n.TapName()} {
				if len(name) > maxName || name == "" || strings.ContainsAny(name, "/%\x00 ") {
					t.Errorf("a name %q", name)
				}
			}
			if n.Binding == Masquerade && (!n.CIDR.Contains(Guest(n.CIDR)) || !n.IPv6CIDR.Contains(Guest(n.IPv6CIDR))) {
				t.Errorf("the guest's addresses are outside of %s or %s", n.CIDR, n.IPv6CIDR)
			}
		}
	})
}
