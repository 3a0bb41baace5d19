package dhcp6

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/lease"
)

var (
	own   = netip.MustParseAddr("fd10:0:2::2")
	wrong = netip.MustParseAddr("fd10:0:2::9")
)

func config() *lease.Config {
	return &lease.Config{
		SearchDomains: []string{"example.org"},
		Nameservers:   []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::a")},
		V6:            &lease.V6{Address: netip.PrefixFrom(own, 120), Router: netip.MustParseAddr("fe80::1"), BootFileURL: "tftp://[fd00::b]/a.efi"},
	}
}

// message makes a client's message.
func message(kind Kind, options ...[]byte) []byte {
	return append([]byte{byte(kind), 'a', 'b', 'c'}, bytes.Join(options, nil)...)
}

func client() []byte { return option(optClientID, []byte("client")) }
func server() []byte { return option(optServerID, identity(netip.MustParseAddr("fe80::1"))) }
func stranger() []byte {
	return option(optServerID, identity(netip.MustParseAddr("fe80::2")))
}

// iana asks for addresses.
func iana(id string, addresses ...netip.Addr) []byte {
	b := append([]byte(id), make([]byte, 8)...)
	for _, a := range addresses {
		b = append(b, address(a, 7)...)
	}
	return option(optIANA, b)
}

func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		b    []byte
		want string
	}{
		"empty":               {nil, "0 bytes"},
		"short":               {[]byte{1, 2, 3}, "3 bytes"},
		"half an option":      {message(Solicit, []byte{0, 1, 0}), "cut off"},
		"cut off":             {message(Solicit, client()[:7]), "option 1 is cut off"},
		"empty identifier":    {message(Solicit, option(optClientID, nil)), "option 1 has 0 bytes"},
		"long identifier":     {message(Solicit, option(optServerID, make([]byte, 131))), "option 2 has 131 bytes"},
		"short IA_NA":         {message(Solicit, option(optIANA, make([]byte, 11))), "option 3 has 11 bytes"},
		"cut off within":      {message(Solicit, option(optIANA, make([]byte, 14))), "cut off"},
		"short address":       {message(Solicit, option(optIANA, append(make([]byte, 12), option(optAddress, make([]byte, 23))...))), "option 5 has 23 bytes"},
		"longest identifier":  {message(Solicit, option(optClientID, make([]byte, 130))), ""},
		"unknown, and others": {message(77, option(9999, []byte("x")), iana("iana", own)), ""},
	} {
		_, err := Parse(c.b)
		if c.want == "" && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want one with %q", name, err, c.want)
		}
	}
}

// TestBounds: a message with very many parts is not kept.
func TestBounds(t *testing.T) {
	var many []netip.Addr
	for range 20 {
		many = append(many, own)
	}
	m, err := Parse(message(Solicit, bytes.Repeat(iana("iana", many...), 20)))
	if err != nil {
		t.Fatal(err)
	}
	if len(m.IANAs) != maxIANAs || len(m.IANAs[0].Addresses) != maxAddresses {
		t.Errorf("%d requests of %d addresses are kept", len(m.IANAs), len(m.IANAs[0].Addresses))
	}
}

// TestAnswer: which messages are answered, and with which addresses for how long.
func TestAnswer(t *testing.T) {
	const life = "=86313600"
	rapid := option(optRapidCommit, nil)
	for name, c := range map[string]struct {
		b    []byte
		kind Kind // 0: no answer
		want string
	}{
		"solicit":                       {message(Solicit, client(), iana("iana")), Advertise, "iana:fd10:0:2::2" + life},
		"solicit, another address":      {message(Solicit, client(), iana("iana", wrong)), Advertise, "iana:fd10:0:2::2" + life},
		"rapid commit":                  {message(Solicit, client(), iana("iana"), rapid), Reply, "iana:fd10:0:2::2" + life},
		"solicit without a client":      {message(Solicit, iana("iana")), 0, ""},
		"solicit of a server":           {message(Solicit, client(), server(), iana("iana")), 0, ""},
		"request":                       {message(Request, client(), server(), iana("iana", own)), Reply, "iana:fd10:0:2::2" + life},
		"request of another server":     {message(Request, client(), stranger(), iana("iana", own)), 0, ""},
		"request of no server":          {message(Request, client(), iana("iana", own)), 0, ""},
		"two requests":                  {message(Request, client(), server(), iana("iana"), iana("more")), Reply, "iana:fd10:0:2::2" + life + " more:status=2"},
		"renewal":                       {message(Renew, client(), server(), iana("iana", own)), Reply, "iana:fd10:0:2::2" + life},
		"renewal of a wrong address":    {message(Renew, client(), server(), iana("iana", wrong)), Reply, "iana:fd10:0:2::2" + life + ",fd10:0:2::9=0"},
		"rebind":                        {message(Rebind, client(), iana("iana", own)), Reply, "iana:fd10:0:2::2" + life},
		"rebind to a server":            {message(Rebind, client(), server(), iana("iana", own)), 0, ""},
		"confirm":                       {message(Confirm, client(), iana("iana", own)), Reply, "status=0"},
		"confirm of a wrong address":    {message(Confirm, client(), iana("iana", own, wrong)), Reply, "status=4"},
		"confirm of nothing":            {message(Confirm, client(), iana("iana")), 0, ""},
		"release":                       {message(Release, client(), server(), iana("iana", own)), Reply, "status=0"},
		"release to another":            {message(Release, client(), stranger(), iana("iana", own)), 0, ""},
		"decline":                       {message(Decline, client(), server(), iana("iana", own)), Reply, "status=0"},
		"information":                   {message(InformationRequest), Reply, ""},
		"information of another server": {message(InformationRequest, stranger()), 0, ""},
		"an answer":                     {message(Advertise, client(), server()), 0, ""},
		"unknown":                       {message(77, client()), 0, ""},
	} {
		m, err := Parse(c.b)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		a := NewResponder(config()).Answer(m)
		if a == nil {
			if c.kind != 0 {
				t.Errorf("%s: no answer, want %s", name, c.kind)
			}
			continue
		}
		if a.Kind != c.kind || a.Payload[0] != byte(c.kind) {
			t.Errorf("%s: answer %s, want %s", name, a.Kind, c.kind)
		}
		got := read(t, a.Payload)
		if got.assigned != c.want {
			t.Errorf("%s: answer %q, want %q", name, got.assigned, c.want)
		}
		if string(a.Payload[1:4]) != "abc" {
			t.Errorf("%s: transaction %q", name, a.Payload[1:4])
		}
		if !bytes.Equal(got.options[optServerID], server()[4:]) || !bytes.Equal(got.options[optClientID], m.ClientID) {
			t.Errorf("%s: server %x, client %x", name, got.options[optServerID], got.options[optClientID])
		}
		if _, has := got.options[optRapidCommit]; has != (name == "rapid commit") {
			t.Errorf("%s: rapid commit %v", name, has)
		}
	}
}

// TestTold: name servers, domains and, for who asks, the boot file.
func TestTold(t *testing.T) {
	for name, c := range map[string]struct {
		wanted []byte
		boot   string
	}{
		"asked":     {[]byte{0, 23, 0, optBootFileURL}, "tftp://[fd00::b]/a.efi"},
		"not asked": {[]byte{0, 23, optBootFileURL, 0, 0}, ""},
	} {
		m, err := Parse(message(InformationRequest, option(optWanted, c.wanted)))
		if err != nil {
			t.Fatal(err)
		}
		got := read(t, NewResponder(config()).Answer(m).Payload).options
		if a := netip.MustParseAddr("fd00::a"); !bytes.Equal(got[optNameservers], a.AsSlice()) {
			t.Errorf("%s: name servers %x", name, got[optNameservers])
		}
		if string(got[optSearch]) != "\x07example\x03org\x00" {
			t.Errorf("%s: domains %q", name, got[optSearch])
		}
		if string(got[optBootFileURL]) != c.boot {
			t.Errorf("%s: boot file %q", name, got[optBootFileURL])
		}
	}
}

// TestRoom: what makes an answer too long for any link is left out.
func TestRoom(t *testing.T) {
	c := config()
	for range 32 {
		c.SearchDomains = append(c.SearchDomains, strings.Repeat("a", 60)+".example.org")
	}
	m, err := Parse(message(Solicit, client(), iana("iana")))
	if err != nil {
		t.Fatal(err)
	}
	a := NewResponder(c).Answer(m)
	if len(a.Payload) > maxReply || len(a.LeftOut) != 1 || a.LeftOut[0] != optSearch {
		t.Errorf("an answer of %d bytes without %v", len(a.Payload), a.LeftOut)
	}
}

// answered is what an answer says.
type answered struct {
	options  map[uint16][]byte
	assigned string
}

func read(t *testing.T, b []byte) (a answered) {
	t.Helper()
	a.options = make(map[uint16][]byte)
	var words []string
	must(t, eachOption(b[headerSize:], func(code uint16, value []byte) error {
		a.options[code] = value
		switch code {
		case optStatus:
			words = append(words, statusText(value))
		case optIANA:
			var parts []string
			must(t, eachOption(value[ianaSize:], func(code uint16, value []byte) error {
				if code == optStatus {
					parts = append(parts, statusText(value))
				} else {
					parts = append(parts, netip.AddrFrom16([16]byte(value)).String()+"="+number(value[20:]))
				}
				return nil
			}))
			words = append(words, string(value[:4])+":"+strings.Join(parts, ","))
		}
		return nil
	}))
	a.assigned = strings.Join(words, " ")
	return a
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func statusText(value []byte) string { return "status=" + number(append([]byte{0, 0}, value...)) }

func number(b []byte) string {
	return strconv.FormatUint(uint64(binary.BigEndian.Uint32(b)), 10)
}

// FuzzDHCPv6: whatever a guest sends, an answer is whole and fits every link.
func FuzzDHCPv6(f *testing.F) {
	f.Add(message(Solicit, client(), iana("iana", own), option(optWanted, []byte{0, optBootFileURL})))
	f.Add(message(Renew, client(), server(), iana("iana", wrong), iana("more")))
	f.Add(message(Confirm, client(), iana("iana", own)))
	r := NewResponder(config())
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b)
		if err != nil {
			return
		}
		a := r.Answer(m)
		if a == nil {
			return
		}
		if len(a.Payload) > maxReply {
			t.Errorf("an answer of %d bytes", len(a.Payload))
		}
		read(t, a.Payload)
	})
}
