package rules

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/podnet"
)

// Apply replaces the tables in the network namespace of the calling thread, which the caller
// has locked: the old ones go and these come in one transaction.
func Apply(tables ...Table) error {
	conn, err := nftables.New(nftables.WithSockOptions(makeRoom))
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	wanted := make(map[nftables.TableFamily]Table)
	for _, t := range tables {
		wanted[t.family()] = t
	}
	for _, family := range []nftables.TableFamily{nftables.TableFamilyIPv4, nftables.TableFamilyIPv6} {
		table := &nftables.Table{Family: family, Name: TableName}
		conn.AddTable(table) // one that isn't there can't be deleted
		conn.DelTable(table)
		if t, is := wanted[family]; is {
			add(conn, table, t)
		}
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("nftables: replacing table %s: %w", TableName, err)
	}
	return nil
}

// socketRoom is how much of a transaction's messages, and of the kernel's answers to them, a socket
// holds, in bytes: the most that a plan comes to takes 2 MiB. The kernel's default has no room for 40 rules.
const socketRoom = 8 << 20

// makeRoom needs CAP_NET_ADMIN to go beyond the system's most (net.core.rmem_max, wmem_max).
func makeRoom(socket *netlink.Conn) error {
	return errors.Join(socket.SetReadBuffer(socketRoom), socket.SetWriteBuffer(socketRoom))
}

func (t Table) family() nftables.TableFamily {
	if t.IPv6 {
		return nftables.TableFamilyIPv6
	}
	return nftables.TableFamilyIPv4
}

func add(conn *nftables.Conn, table *nftables.Table, t Table) {
	conn.AddTable(table)
	for _, c := range t.Chains {
		made := &nftables.Chain{Table: table, Name: c.Name}
		if c.Hook != "" {
			made.Type, made.Hooknum = nftables.ChainType(c.Type), hook(c.Hook)
			made.Priority = nftables.ChainPriorityRef(nftables.ChainPriority(c.Priority))
		}
		chain := conn.AddChain(made)
		for _, r := range c.Rules {
			conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: r.expressions(t.IPv6)})
		}
	}
}

func hook(name string) *nftables.ChainHook {
	switch name {
	case "prerouting":
		return nftables.ChainHookPrerouting
	case "output":
		return nftables.ChainHookOutput
	case "forward":
		return nftables.ChainHookForward
	}
	return nftables.ChainHookPostrouting
}

// register that matches and actions use.
const register = 1

// Where addresses are in the headers (RFC 791, RFC 8200).
const (
	ipv4Source, ipv4Destination = 12, 16
	ipv6Source, ipv6Destination = 8, 24
)

// Bits of a connection's state and status (linux/netfilter/nf_conntrack_common.h).
const (
	stateKnown   = expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED
	stateUnknown = expr.CtStateBitINVALID | expr.CtStateBitUNTRACKED
	statusDNAT   = 1 << 5
)

func (r Rule) expressions(ipv6 bool) (all []expr.Any) {
	source, destination := uint32(ipv4Source), uint32(ipv4Destination)
	if ipv6 {
		source, destination = ipv6Source, ipv6Destination
	}
	if r.In != "" {
		all = append(all, &expr.Meta{Key: expr.MetaKeyIIFNAME, Register: register}, equal(interfaceName(r.In)))
	}
	if r.Out != "" {
		all = append(all, &expr.Meta{Key: expr.MetaKeyOIFNAME, Register: register}, equal(interfaceName(r.Out)))
	}
	if r.ToHost {
		all = append(all, &expr.Meta{Key: expr.MetaKeyPKTTYPE, Register: register}, equal([]byte{unix.PACKET_HOST}))
	}
	if r.Source.IsValid() {
		all = append(all, address(source, r.Source, r.NotSource)...)
	}
	if r.Destination.IsValid() {
		all = append(all, address(destination, r.Destination, false)...)
	}
	if r.Ports.First != 0 {
		all = append(all, ports(r.Ports)...)
	}
	if r.Unknown {
		all = append(all, connection(expr.CtKeySTATE, expr.CmpOpNeq, stateUnknown)...)
	}
	if r.Uninvited {
		all = append(all, connection(expr.CtKeySTATE, expr.CmpOpEq, stateKnown)...)
		all = append(all, connection(expr.CtKeySTATUS, expr.CmpOpEq, statusDNAT)...)
	}
	return append(all, r.action(ipv6)...)
}

func (r Rule) action(ipv6 bool) []expr.Any {
	family := uint32(unix.NFPROTO_IPV4)
	if ipv6 {
		family = unix.NFPROTO_IPV6
	}
	to := &expr.Immediate{Register: register, Data: r.To.AsSlice()}
	switch r.Action {
	case DNAT:
		return []expr.Any{to, &expr.NAT{Type: expr.NATTypeDestNAT, Family: family, RegAddrMin: register}}
	case SNAT:
		return []expr.Any{to, &expr.NAT{Type: expr.NATTypeSourceNAT, Family: family, RegAddrMin: register}}
	case Masquerade:
		return []expr.Any{&expr.Masq{}}
	case Jump:
		return []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: r.Chain}}
	}
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}
}

func equal(data []byte) *expr.Cmp {
	return &expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: data}
}

// interfaceName is padded as the kernel compares it (IFNAMSIZ).
func interfaceName(name string) []byte {
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, name)
	return padded
}

func address(offset uint32, p netip.Prefix, not bool) []expr.Any {
	length := uint32(p.Addr().BitLen() / 8)
	all := []expr.Any{&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: length}}
	if !p.IsSingleIP() {
		all = append(all, &expr.Bitwise{SourceRegister: register, DestRegister: register, Len: length, Mask: mask(p), Xor: make([]byte, length)})
	}
	comparison := equal(p.Masked().Addr().AsSlice())
	if not {
		comparison.Op = expr.CmpOpNeq
	}
	return append(all, comparison)
}

func mask(p netip.Prefix) []byte {
	ones := make([]byte, p.Addr().BitLen()/8)
	for i := range p.Bits() {
		ones[i/8] |= 0x80 >> (i % 8)
	}
	return ones
}

func ports(p podnet.Ports) []expr.Any {
	protocol := byte(unix.IPPROTO_TCP)
	if p.Protocol == "udp" {
		protocol = unix.IPPROTO_UDP
	}
	port := func(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register}, equal([]byte{protocol}),
		&expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpGte, Register: register, Data: port(p.First)},
		&expr.Cmp{Op: expr.CmpOpLte, Register: register, Data: port(p.Last)},
	}
}

// connection matches one that has none of these bits (CmpOpEq), or any (CmpOpNeq).
func connection(key expr.CtKey, op expr.CmpOp, bits uint32) []expr.Any {
	return []expr.Any{
		&expr.Ct{Key: key, Register: register},
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(bits), Xor: make([]byte, 4)},
		&expr.Cmp{Op: op, Register: register, Data: make([]byte, 4)},
	}
}
