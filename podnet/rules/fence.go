package rules

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Fence keeps a guest that is bridged to its pod's network to its own addresses: frames that its tap receives are dropped
// unless they are sent with these. It knows no connections: what reaches the guest is the network's affair.
type Fence struct {
	Tap string
	MAC net.HardwareAddr
	// Addresses are the guest's; none: they are not known, as on a network without addresses of its own, and only the MAC is
	// looked at.
	Addresses []netip.Addr
	// Gateways of the guest, for which it must not answer though their link-local addresses could be its own.
	Gateways []netip.Addr
}

// Where things are in frames (IEEE 802.3; RFC 826, RFC 791, RFC 8200, RFC 4861), in bytes.
const (
	etherSource      = 6
	arpKind          = 0 // hardware and protocol, with their lengths
	arpSenderMAC     = 8
	arpSender        = 14
	ipv6NextHeader   = 6
	neighbourTarget  = 8
	arpOverEthernet  = "\x00\x01\x08\x00\x06\x04"
	etherTypeARP     = 0x0806
	etherTypeIPv4    = 0x0800
	etherTypeIPv6    = 0x86dd
	dhcpServerPort   = 67
	fragmentHeader   = 44
	advertiseRouter  = 134
	advertiseSelf    = 136
	redirect         = 137
	neighboursChain  = "neighbours"
	fenceChain       = "fence"
	priorityOfFences = 0
)

// match is a condition, as nft(8) shows it and as the kernel takes it.
type match struct {
	text  string
	exprs []expr.Any
}

// fenceRule has a verdict for what matches all of its conditions.
type fenceRule struct {
	matches []match
	verdict expr.VerdictKind
	chain   string // of VerdictGoto
}

func (r fenceRule) String() string {
	var words []string
	for _, m := range r.matches {
		words = append(words, m.text)
	}
	switch r.verdict {
	case expr.VerdictDrop:
		words = append(words, "drop")
	case expr.VerdictAccept:
		words = append(words, "accept")
	case expr.VerdictGoto:
		words = append(words, "goto "+r.chain)
	}
	return strings.Join(words, " ")
}

func drop(m ...match) fenceRule   { return fenceRule{matches: m, verdict: expr.VerdictDrop} }
func accept(m ...match) fenceRule { return fenceRule{matches: m, verdict: expr.VerdictAccept} }

func field(text string, base expr.PayloadBase, offset int, op expr.CmpOp, data []byte) match {
	return match{text, []expr.Any{
		&expr.Payload{DestRegister: register, Base: base, Offset: uint32(offset), Len: uint32(len(data))},
		&expr.Cmp{Op: op, Register: register, Data: data},
	}}
}

func protocol(text string, etherType uint16) match {
	return match{"meta protocol " + text, []expr.Any{
		&expr.Meta{Key: expr.MetaKeyPROTOCOL, Register: register}, equal(binary.BigEndian.AppendUint16(nil, etherType)),
	}}
}

// transport matches the protocol behind all of IPv6's extension headers.
func transport(text string, op expr.CmpOp, number byte) match {
	return match{"meta l4proto " + text, []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register}, &expr.Cmp{Op: op, Register: register, Data: []byte{number}},
	}}
}

func icmpv6(op expr.CmpOp, kind byte) match {
	sign := ""
	if op == expr.CmpOpNeq {
		sign = "!= "
	}
	return field(fmt.Sprintf("icmpv6 type %s%d", sign, kind), expr.PayloadBaseTransportHeader, 0, op, []byte{kind})
}

func linkLocal(text string, base expr.PayloadBase, offset int) match {
	p := netip.MustParsePrefix("fe80::/10")
	length := uint32(2)
	return match{text + " " + p.String(), []expr.Any{
		&expr.Payload{DestRegister: register, Base: base, Offset: uint32(offset), Len: length},
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: length, Mask: mask(p)[:length], Xor: make([]byte, length)},
		equal(p.Addr().AsSlice()[:length]),
	}}
}

// frames are the rules of the fence's own chain. What they don't accept is dropped, if addresses are known.
func (f Fence) frames() []fenceRule {
	const network = expr.PayloadBaseNetworkHeader
	rules := []fenceRule{drop(field("ether saddr != "+f.MAC.String(), expr.PayloadBaseLLHeader, etherSource, expr.CmpOpNeq, f.MAC))}
	if len(f.Addresses) == 0 {
		return rules
	}
	arp, ip, ip6 := protocol("arp", etherTypeARP), protocol("ip", etherTypeIPv4), protocol("ip6", etherTypeIPv6)
	of6, none4, none6 := transport("icmpv6", expr.CmpOpEq, unix.IPPROTO_ICMPV6), netip.IPv4Unspecified(), netip.IPv6Unspecified()
	source := func(a netip.Addr) match {
		if a.Is4() {
			return field("ip saddr "+a.String(), network, ipv4Source, expr.CmpOpEq, a.AsSlice())
		}
		return field("ip6 saddr "+a.String(), network, ipv6Source, expr.CmpOpEq, a.AsSlice())
	}
	arpKnown := field("arp of ethernet and ip", network, arpKind, expr.CmpOpEq, []byte(arpOverEthernet))
	sender := func(a netip.Addr) match {
		return field("arp saddr ip "+a.String(), network, arpSender, expr.CmpOpEq, a.AsSlice())
	}
	rules = append(rules,
		drop(arp, field("arp saddr ether != "+f.MAC.String(), network, arpSenderMAC, expr.CmpOpNeq, f.MAC)),
		drop(ip6, of6, icmpv6(expr.CmpOpEq, advertiseRouter)), drop(ip6, of6, icmpv6(expr.CmpOpEq, redirect)),
		accept(arp, arpKnown, sender(none4)), // asks whether an address is free
		accept(ip, source(none4), transport("udp", expr.CmpOpEq, unix.IPPROTO_UDP),
			field(fmt.Sprintf("udp dport %d", dhcpServerPort), expr.PayloadBaseTransportHeader, 2, expr.CmpOpEq, binary.BigEndian.AppendUint16(nil, dhcpServerPort))),
	)
	for _, g := range f.Gateways {
		if g.Is6() {
			rules = append(rules, drop(ip6, source(g)), drop(ip6, of6, icmpv6(expr.CmpOpEq, advertiseSelf), target(g)))
		}
	}
	onward := func(m match) fenceRule {
		return fenceRule{matches: []match{ip6, m}, verdict: expr.VerdictGoto, chain: neighboursChain}
	}
	for _, a := range f.Addresses {
		if a.Is4() {
			rules = append(rules, accept(arp, arpKnown, sender(a)), accept(ip, source(a)))
		} else {
			rules = append(rules, onward(source(a)))
		}
	}
	// A guest chooses its link-local address by itself, and asks without any whether one is free.
	return append(rules, onward(linkLocal("ip6 saddr", network, ipv6Source)), accept(ip6, source(none6), of6, icmpv6(expr.CmpOpNeq, advertiseSelf)))
}

func target(a netip.Addr) match {
	return field("icmpv6 taddr "+a.String(), expr.PayloadBaseTransportHeader, neighbourTarget, expr.CmpOpEq, a.AsSlice())
}

// neighbours are the rules for IPv6 packets with a source of the guest's: it advertises its own addresses alone. The type of a later
// fragment can't be seen, and receivers take no advertisement in fragments (RFC 6980).
func (f Fence) neighbours() []fenceRule {
	rules := []fenceRule{
		accept(transport("!= icmpv6", expr.CmpOpNeq, unix.IPPROTO_ICMPV6)),
		accept(field("ip6 nexthdr fragment", expr.PayloadBaseNetworkHeader, ipv6NextHeader, expr.CmpOpEq, []byte{fragmentHeader})),
		accept(icmpv6(expr.CmpOpNeq, advertiseSelf)),
	}
	for _, a := range f.Addresses {
		if a.Is6() {
			rules = append(rules, accept(target(a)))
		}
	}
	return append(rules, accept(linkLocal("icmpv6 taddr", expr.PayloadBaseTransportHeader, neighbourTarget)), drop())
}

// policy is what becomes of frames that no rule is about.
func (f Fence) policy() nftables.ChainPolicy {
	if len(f.Addresses) == 0 {
		return nftables.ChainPolicyAccept
	}
	return nftables.ChainPolicyDrop
}

// String is what nft(8) would show of the fence.
func (f Fence) String() string {
	var b strings.Builder
	policy := map[nftables.ChainPolicy]string{nftables.ChainPolicyAccept: "accept", nftables.ChainPolicyDrop: "drop"}[f.policy()]
	fmt.Fprintf(&b, "table netdev %s {\n\tchain %s {\n", TableName, neighboursChain)
	list := func(rules []fenceRule) {
		for _, r := range rules {
			fmt.Fprintf(&b, "\t\t%s\n", r)
		}
		b.WriteString("\t}\n")
	}
	list(f.neighbours())
	fmt.Fprintf(&b, "\tchain %s {\n\t\ttype filter hook ingress device %q priority %d; policy %s;\n", fenceChain, f.Tap, priorityOfFences, policy)
	list(f.frames())
	return b.String() + "}\n"
}

// Apply replaces the fence in the network namespace of the calling thread. The tap is there, and goes on to have it for as
// long as it is.
func (f Fence) Apply() error {
	conn, err := nftables.New(nftables.WithSockOptions(makeRoom))
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	table := &nftables.Table{Family: nftables.TableFamilyNetdev, Name: TableName}
	conn.AddTable(table) // one that isn't there can't be deleted
	conn.DelTable(table)
	conn.AddTable(table)
	policy := f.policy()
	add := func(chain *nftables.Chain, rules []fenceRule) {
		chain = conn.AddChain(chain)
		for _, r := range rules {
			conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: r.expressions()})
		}
	}
	add(&nftables.Chain{Table: table, Name: neighboursChain}, f.neighbours())
	add(&nftables.Chain{
		Table: table, Name: fenceChain, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookIngress, Device: f.Tap,
		Priority: nftables.ChainPriorityRef(priorityOfFences), Policy: &policy,
	}, f.frames())
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("nftables: replacing table netdev %s, which keeps the guest to its own addresses (the kernel needs NF_TABLES_NETDEV): %w", TableName, err)
	}
	return nil
}

func (r fenceRule) expressions() (all []expr.Any) {
	for _, m := range r.matches {
		all = append(all, m.exprs...)
	}
	return append(all, &expr.Verdict{Kind: r.verdict, Chain: r.chain})
}
