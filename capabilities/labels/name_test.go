package labels

import (
	"strings"
	"testing"
)

func TestEncode(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"", ""},
		{"Skylake-Server-IBRS", "Skylake-Server-IBRS"},
		{"sse4.1", "sse4.1"},
		{"lahf_lm", "lahf_lm"},
		{"a", "a"},
		{strings.Repeat("x", 63), strings.Repeat("x", 63)},
		// SHA-256 of "a b", of "+" and of 64 times x: echo -n … | sha256sum
		{"a b", "a-b-xc8687a08aa5d"},
		{"+", "xa318c24216de"},
		{strings.Repeat("x", 64), strings.Repeat("x", 49) + "-x7ce100971f64"},
		// It could be taken for an encoded one.
		{"a-b-xc8687a08aa5d", "a-b-xc8687a08aa5d-xf4167c2f3ff7"},
	} {
		if got := encode(test.in); got != test.want {
			t.Errorf("encode(%q) = %q, want %q", test.in, got, test.want)
		}
	}
}

// FuzzEncode: whatever the names, they are valid, the same each time, and
// different if the names are.
func FuzzEncode(f *testing.F) {
	for _, s := range []string{"a b", "a-b", "é", strings.Repeat("y", 300), "-", "x0123456789ab", "a-x0123456789ab", "\x00", "7.2.22 (Debian)"} {
		f.Add(s, s+"-")
		f.Add(s, encode(s))
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := encode(a), encode(b)
		if a != "" && !nameSyntax.MatchString(x) || x != encode(a) {
			t.Errorf("encode(%q) = %q", a, x)
		}
		if valid(a) != nameSyntax.MatchString(a) {
			t.Errorf("valid(%q) = %v", a, valid(a))
		}
		if a != b && x == y {
			t.Errorf("%q and %q are both %q", a, b, x)
		}
	})
}
