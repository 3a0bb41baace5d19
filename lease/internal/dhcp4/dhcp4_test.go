package dhcp4

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/lease"
)

var guest = lease.MAC{2, 0, 0, 0, 0, 0x10}

func config() *lease.Config {
	return &lease.Config{MAC: guest, V4: &lease.V4{
		Address: netip.MustParsePrefix("10.0.2.2/24"), Server: netip.MustParseAddr("10.0.2.1"), Gateway: netip.MustParseAddr("10.0.2.1"),
	}}
}

// message makes a client's message with options that follow option 53.
func message(kind Kind, options ...byte) []byte {
	b := make([]byte, atOptions)
	b[0], b[1], b[2] = opRequest, ethernet, 6
	copy(b[atTransaction:], "abcd")
	copy(b[atHardware:], guest[:])
	binary.BigEndian.PutUint32(b[atCookie:], cookie)
	b = append(b, optKind, 1, byte(kind))
	return append(append(b, options...), optEnd)
}

func with(b []byte, offset int, value ...byte) []byte {
	b = bytes.Clone(b)
	copy(b[offset:], value)
	return b
}

func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		b    []byte
		want string
	}{
		"short":            {message(Discover)[:atOptions-1], "239 bytes"},
		"a reply":          {with(message(Discover), 0, opReply), "no request over Ethernet"},
		"not Ethernet":     {with(message(Discover), 1, 6), "no request over Ethernet"},
		"long address":     {with(message(Discover), 2, 16), "no request over Ethernet"},
		"BOOTP":            {with(message(Discover), atCookie, 0), "magic cookie"},
		"from a relay":     {with(message(Discover), atRelay, 10, 0, 0, 1), "relay"},
		"without kind":     {with(message(Discover), atOptions, optEnd), "option 53 is missing"},
		"cut off":          {message(Discover, optClientID, 9, 1), "option 61 is cut off"},
		"without a length": {message(Discover, optClientID)[:atOptions+4], "option 61 is cut off"},
		"short address":    {message(Discover, optRequested, 3, 1, 2, 3), "option 50 has 3 bytes instead of 4"},
		"empty kind":       {with(message(Discover), atOptions, optKind, 0), "option 53 has 0 bytes"},
		"whole":            {message(Discover, optPad, optMaxSize, 2, 2, 64), ""},
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

// TestAnswer: which messages are answered, how, and where the answer goes.
func TestAnswer(t *testing.T) {
	const ours, others = "\x0a\x00\x02\x01", "\x0a\x00\x02\x09"
	requested := func(last byte) []byte { return []byte{optRequested, 4, 10, 0, 2, last} }
	server := func(address string) []byte { return append([]byte{optServer, 4}, address...) }
	for name, c := range map[string]struct {
		b    []byte
		kind Kind // 0: no answer
		to   string
	}{
		"discover":                   {message(Discover), Offer, "10.0.2.2"},
		"discover, broadcast":        {with(message(Discover), atFlags, 0x80), Offer, "255.255.255.255"},
		"request":                    {message(Request, append(requested(2), server(ours)...)...), Ack, "10.0.2.2"},
		"request to another server":  {message(Request, append(requested(2), server(others)...)...), 0, ""},
		"request after a reboot":     {message(Request, requested(2)...), Ack, "10.0.2.2"},
		"request of a wrong address": {message(Request, requested(9)...), Nak, "255.255.255.255"},
		"request of no address":      {message(Request), Nak, "255.255.255.255"},
		"renewal":                    {with(message(Request), atClient, 10, 0, 2, 2), Ack, "10.0.2.2"},
		"renewal of a wrong address": {with(message(Request), atClient, 10, 0, 2, 9), Nak, "255.255.255.255"},
		"inform":                     {with(message(Inform), atClient, 10, 0, 2, 7), Ack, "10.0.2.7"},
		"inform without an address":  {message(Inform), 0, ""},
		"decline":                    {message(Decline, append(requested(2), server(ours)...)...), 0, ""},
		"release":                    {with(message(Release, server(ours)...), atClient, 10, 0, 2, 2), 0, ""},
		"an offer":                   {message(Offer), 0, ""},
		"unknown":                    {message(77), 0, ""},
		"another's MAC":              {with(message(Discover), atHardware, 2, 9), 0, ""},
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
		if a.Kind != c.kind {
			t.Errorf("%s: answer %s, want %s", name, a.Kind, c.kind)
		}
		if a.To.String() != c.to {
			t.Errorf("%s: to %s, want %s", name, a.To, c.to)
		}
		if got := string(a.Payload[atTransaction : atTransaction+4]); got != "abcd" {
			t.Errorf("%s: transaction %q", name, got)
		}
		yours := a.Payload[atYours : atYours+4]
		if has := yours[0] != 0; has != (a.Kind != Nak && m.Kind != Inform) {
			t.Errorf("%s: the address in the answer is %v", name, yours)
		}
	}
}

// read returns the options of an answer, wherever they are; long ones whole.
func read(t *testing.T, b []byte) map[byte]string {
	t.Helper()
	all := make(map[byte]string)
	area := func(b []byte) {
		for len(b) > 0 && b[0] != optEnd {
			if b[0] == optPad {
				b = b[1:]
				continue
			}
			end := 2 + int(b[1])
			all[b[0]] += string(b[2:end])
			b = b[end:]
		}
		if len(b) == 0 {
			t.Error("a field with options has no end")
		}
	}
	area(b[atOptions:])
	if o := all[optOverload]; o != "" {
		if o[0]&1 != 0 {
			area(b[atFile:atCookie])
		}
		if o[0]&2 != 0 {
			area(b[atServerName:atFile])
		}
	}
	return all
}

func discover(t *testing.T, c *lease.Config, options ...byte) *Answer {
	t.Helper()
	m, err := Parse(message(Discover, options...))
	if err != nil {
		t.Fatal(err)
	}
	return NewResponder(c).Answer(m)
}

// TestRoom: an answer has no more than the client takes; what it asks for comes first.
func TestRoom(t *testing.T) {
	long := config()
	for code := 224; code < 234; code++ {
		long.V4.Private = append(long.V4.Private, lease.Option{Code: code, Value: strings.Repeat("x", 60)})
	}
	for name, c := range map[string]struct {
		options []byte
		most    int
		without []byte // options that find no room
	}{
		"of 576 bytes":         {nil, 548, []byte{231, 232, 233}},
		"too small a room":     {[]byte{optMaxSize, 2, 0, 9}, 548, []byte{231, 232, 233}},
		"what is wanted":       {[]byte{optWanted, 4, 230, 231, 232, 233}, 548, []byte{227, 228, 229}},
		"of 1500 bytes":        {[]byte{optMaxSize, 2, 5, 220}, 1472, nil},
		"more than a packet's": {[]byte{optMaxSize, 2, 255, 255}, 1472, nil},
	} {
		a := discover(t, long, c.options...)
		if len(a.Payload) > c.most {
			t.Errorf("%s: an answer of %d bytes, at most %d are wanted", name, len(a.Payload), c.most)
		}
		if !bytes.Equal(a.LeftOut, c.without) {
			t.Errorf("%s: %v left out, want %v", name, a.LeftOut, c.without)
		}
		got := read(t, a.Payload)
		for _, o := range long.V4.Private {
			if has := got[byte(o.Code)] == o.Value; has == bytes.Contains(c.without, []byte{byte(o.Code)}) {
				t.Errorf("%s: option %d: %q", name, o.Code, got[byte(o.Code)])
			}
		}
	}
	if a := discover(t, config()); len(a.Payload) != leastSize {
		t.Errorf("a short answer has %d bytes, some clients want %d", len(a.Payload), leastSize)
	}
}

// TestLongOption: an option of more than 255 bytes comes in pieces.
func TestLongOption(t *testing.T) {
	c := config()
	for i := range 30 {
		c.SearchDomains = append(c.SearchDomains, string(rune('a'+i%26))+strings.Repeat("y", 20)+".example.org")
	}
	got := read(t, discover(t, c, optMaxSize, 2, 5, 220).Payload)[optSearch]
	if len(got) <= 255 || got[:1] != "\x15" {
		t.Errorf("search domains of %d bytes: %q", len(got), got)
	}
}

// TestBootFields: BOOTP's fields have boot file and server, and no options then.
func TestBootFields(t *testing.T) {
	for name, c := range map[string]struct{ file, server, inFile, inName, next string }{
		"both":        {"a.pxe", "192.0.2.9", "a.pxe", "192.0.2.9", "192.0.2.9"},
		"by name":     {"a.pxe", "tftp.example", "a.pxe", "tftp.example", "0.0.0.0"},
		"longer file": {strings.Repeat("f", 128), "", "", "", "0.0.0.0"},
		"longer name": {"", strings.Repeat("n", 64), "", "", "0.0.0.0"},
	} {
		config := config()
		config.V4.BootFile, config.V4.TFTPServer = c.file, c.server
		b := discover(t, config).Payload
		if got := string(bytes.TrimRight(b[atFile:atCookie], "\x00")); got != c.inFile {
			t.Errorf("%s: file %q", name, got)
		}
		if got := string(bytes.TrimRight(b[atServerName:atFile], "\x00")); got != c.inName {
			t.Errorf("%s: server's name %q", name, got)
		}
		if got := netip.AddrFrom4([4]byte(b[atNext:])).String(); got != c.next {
			t.Errorf("%s: next server %s", name, got)
		}
		options := read(t, b)
		if options[optBootFile] != c.file || options[optTFTPServer] != c.server {
			t.Errorf("%s: options %q and %q", name, options[optBootFile], options[optTFTPServer])
		}
	}
}

// TestRoutes: classless routes are told where the router alone does not do.
func TestRoutes(t *testing.T) {
	to := netip.MustParsePrefix
	for name, c := range map[string]struct {
		gateway string
		routes  []lease.Route
		want    string
	}{
		"router alone":       {"10.0.2.1", nil, ""},
		"no gateway":         {"", nil, ""},
		"gateway outside":    {"169.254.1.1", nil, "20a9fe0101 00000000  00 a9fe0101"},
		"further":            {"10.0.2.1", []lease.Route{{To: to("10.9.0.0/17"), Via: netip.MustParseAddr("10.0.2.7")}}, "110a0900 0a000207  00 0a000201"},
		"on link, no router": {"", []lease.Route{{To: to("192.0.2.128/25")}}, "19c0000280 00000000"},
		"bits of the host":   {"", []lease.Route{{To: to("10.9.8.7/8")}}, "080a 00000000"},
	} {
		config := config()
		config.V4.Gateway, _ = netip.ParseAddr(c.gateway)
		config.V4.Routes = c.routes
		got := hex.EncodeToString([]byte(read(t, discover(t, config).Payload)[optRoutes]))
		if want := strings.ReplaceAll(c.want, " ", ""); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// TestClientID: a client gets its identifier back, with a refusal as well.
func TestClientID(t *testing.T) {
	id := []byte{optClientID, 3, 1, 2, 3}
	for _, b := range [][]byte{message(Discover, id...), message(Request, id...)} {
		m, err := Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		if got := read(t, NewResponder(config()).Answer(m).Payload)[optClientID]; got != "\x01\x02\x03" {
			t.Errorf("%s: %q", m.Kind, got)
		}
	}
}

// FuzzDHCPv4: whatever a guest sends, an answer is whole and within its bounds.
func FuzzDHCPv4(f *testing.F) {
	f.Add(message(Discover))
	f.Add(message(Request, optRequested, 4, 10, 0, 2, 9, optMaxSize, 2, 255, 255, optWanted, 3, 1, 3, 121))
	f.Add(with(message(Inform, optClientID, 2, 1, 1), atClient, 10, 0, 2, 9))
	c := config()
	c.SearchDomains, c.Hostname = []string{strings.Repeat("a", 60) + ".example.org"}, "web"
	c.V4.Private = []lease.Option{{Code: 224, Value: strings.Repeat("x", 255)}, {Code: 225, Value: strings.Repeat("y", 255)}}
	r := NewResponder(c)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b)
		if err != nil {
			return
		}
		a := r.Answer(m)
		if a == nil {
			return
		}
		if len(a.Payload) < leastSize || len(a.Payload) > ordinary-headers {
			t.Errorf("an answer of %d bytes", len(a.Payload))
		}
		if got := read(t, a.Payload)[optKind]; got != string([]byte{byte(a.Kind)}) {
			t.Errorf("the answer's kind is %q instead of %d", got, a.Kind)
		}
	})
}
