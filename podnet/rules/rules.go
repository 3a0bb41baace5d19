// Package rules has the rules of the packet filter in the network namespace of a pod whose
// guest is masqueraded. They are data: String makes of them what nft(8) would show, and Apply
// what the kernel takes, in one transaction. The table is ours alone and replaced as a whole.
// The package must not know how interfaces are made. Start reading at For.
package rules

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"github.com/vmlet/vmlet/podnet"
)

// TableName is that of the table, in each family.
const TableName = "vmlet"

// Guest is one that is masqueraded, in one family of addresses.
type Guest struct {
	// Interface is the pod's, Bridge the one that the guest's tap is in.
	Interface, Bridge string
	// Network is the guest's; podnet.Gateway and podnet.Guest are addresses in it.
	Network netip.Prefix
	// Addresses of the pod, of the same family.
	Addresses []netip.Addr
	// Ports that lead to the guest; none: all.
	Ports []podnet.Ports
}

// Table is what is made in one family.
type Table struct {
	IPv6   bool
	Chains []Chain
}

// Chain of a table; Hook and Type are nft's words. One without a hook is for rules that jump to it.
type Chain struct {
	Name, Type, Hook string
	Priority         int
	Rules            []Rule
}

// Rule matches what it says and nothing else.
type Rule struct {
	In, Out string // interfaces
	// ToHost: the packet was sent to the interface's own MAC.
	ToHost bool
	// Source and Destination; NotSource turns the former round.
	Source, Destination netip.Prefix
	NotSource           bool
	Ports               podnet.Ports // not set: all protocols
	// Unknown: neither of a connection nor the first of one.
	Unknown bool
	// Uninvited: of no connection that is known, or that was led to the guest.
	Uninvited bool
	Action    Action
	To        netip.Addr // of DNAT and SNAT
	Chain     string     // of Jump
}

// Action is what becomes of a packet, in nft's words.
type Action string

// Actions of rules.
const (
	DNAT       Action = "dnat"
	SNAT       Action = "snat"
	Masquerade Action = "masquerade"
	Drop       Action = "drop"
	Jump       Action = "jump"
)

// Priorities, as nft names them: raw, dstnat, filter, srcnat.
const (
	priorityRaw    = -300
	priorityDNAT   = -100
	priorityFilter = 0
	prioritySNAT   = 100
)

// For returns the table of a guest.
func For(g Guest) Table {
	var chains []Chain
	if len(g.Ports) > 0 {
		chains = append(chains, Chain{Name: portsChain, Rules: g.ports()})
	}
	return Table{IPv6: g.Network.Addr().Is6(), Chains: append(chains, []Chain{
		{"guard", "filter", "prerouting", priorityRaw, g.guard()},
		{"prerouting", "nat", "prerouting", priorityDNAT, g.prerouting()},
		{"output", "nat", "output", priorityDNAT, g.output()},
		{"forward", "filter", "forward", priorityFilter, g.forward()},
		{"postrouting", "nat", "postrouting", prioritySNAT, g.postrouting()},
	}...)}
}

// loopback is the pod's, from where the guest is reached; none with IPv6: the kernel
// lets nothing of it out of the loopback interface.
func (g Guest) loopback() []netip.Prefix {
	if g.Network.Addr().Is6() {
		return nil
	}
	return []netip.Prefix{whole(netip.AddrFrom4([4]byte{127, 0, 0, 1}))}
}

func whole(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// guard keeps the guest from the pod's loopback addresses, which route_localnet would let it
// send to.
func (g Guest) guard() []Rule {
	if g.Network.Addr().Is6() {
		return nil // the kernel takes no such packet from an interface
	}
	return []Rule{{In: g.Bridge, Destination: netip.MustParsePrefix("127.0.0.0/8"), Action: Drop}}
}

// portsChain has the guest's ports once, however many ways lead to it: there may be many of both.
const portsChain = "ports"

func (g Guest) ports() (rules []Rule) {
	for _, p := range g.Ports {
		rules = append(rules, Rule{Ports: p, Action: DNAT, To: podnet.Guest(g.Network)})
	}
	return rules
}

// leading leads to the guest what a rule matches, of the guest's ports.
func (g Guest) leading(r Rule) Rule {
	if len(g.Ports) > 0 {
		r.Action, r.Chain = Jump, portsChain
	} else {
		r.Action, r.To = DNAT, podnet.Guest(g.Network)
	}
	return r
}

func (g Guest) prerouting() []Rule {
	rules := []Rule{g.leading(Rule{In: g.Interface, ToHost: true})}
	for _, a := range g.Addresses { // the guest, to its own pod's address
		rules = append(rules, g.leading(Rule{In: g.Bridge, Destination: whole(a)}))
	}
	return rules
}

func (g Guest) output() []Rule {
	var rules []Rule
	for _, p := range g.loopback() {
		rules = append(rules, g.leading(Rule{Destination: p}))
	}
	for _, a := range g.Addresses {
		rules = append(rules, g.leading(Rule{Destination: whole(a)}))
	}
	return rules
}

// forward lets nothing past the ports, as who is in one network with the pod could send to
// the guest's own address; and nothing out with addresses of others.
func (g Guest) forward() []Rule {
	return []Rule{
		{In: g.Bridge, Source: g.Network, NotSource: true, Action: Drop},
		{Out: g.Bridge, Unknown: true, Action: Drop}, // the next rule takes connections alone
		{Out: g.Bridge, Uninvited: true, Action: Drop},
	}
}

func (g Guest) postrouting() []Rule {
	gateway := podnet.Gateway(g.Network)
	rules := []Rule{
		{Out: g.Bridge, Source: g.Network, Action: SNAT, To: gateway},
		{Out: g.Interface, Source: g.Network, Action: Masquerade},
	}
	for _, p := range g.loopback() {
		rules = append(rules, Rule{Out: g.Bridge, Source: p, Action: SNAT, To: gateway})
	}
	return rules
}

// String is what nft(8) would show of the table.
func (t Table) String() string {
	var b strings.Builder
	family := "ip"
	if t.IPv6 {
		family = "ip6"
	}
	fmt.Fprintf(&b, "table %s %s {\n", family, TableName)
	for _, c := range t.Chains {
		fmt.Fprintf(&b, "\tchain %s {\n", c.Name)
		if c.Hook != "" {
			fmt.Fprintf(&b, "\t\ttype %s hook %s priority %d; policy accept;\n", c.Type, c.Hook, c.Priority)
		}
		for _, r := range c.Rules {
			fmt.Fprintf(&b, "\t\t%s\n", r.text(family))
		}
		b.WriteString("\t}\n")
	}
	return b.String() + "}\n"
}

func (r Rule) text(family string) string {
	var words []string
	add := func(is bool, format string, args ...any) {
		if is {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	add(r.In != "", "iifname %q", r.In)
	add(r.Out != "", "oifname %q", r.Out)
	add(r.ToHost, "meta pkttype host")
	add(r.Source.IsValid() && !r.NotSource, "%s saddr %s", family, network(r.Source))
	add(r.Source.IsValid() && r.NotSource, "%s saddr != %s", family, network(r.Source))
	add(r.Destination.IsValid(), "%s daddr %s", family, network(r.Destination))
	add(r.Ports.First != 0 && r.Ports.First == r.Ports.Last, "%s dport %d", r.Ports.Protocol, r.Ports.First)
	add(r.Ports.First != r.Ports.Last, "%s dport %d-%d", r.Ports.Protocol, r.Ports.First, r.Ports.Last)
	add(r.Unknown, "ct state invalid,untracked")
	add(r.Uninvited, "ct state ! established,related ct status ! dnat")
	switch {
	case r.To.IsValid():
		add(true, "%s to %s", r.Action, r.To)
	case r.Action == Jump:
		add(true, "%s %s", r.Action, r.Chain)
	default:
		add(true, "%s", cmp.Or(r.Action, "accept"))
	}
	return strings.Join(words, " ")
}

func network(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}
