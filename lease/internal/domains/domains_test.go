package domains_test

import (
	"strings"
	"testing"

	"github.com/vmlet/vmlet/lease/internal/domains"
)

func TestCheck(t *testing.T) {
	long := strings.Repeat("a", 63)
	for name, ok := range map[string]bool{
		"example.org": true, "example.org.": true, "a": true, "_tcp.a-b": true, long + "." + long + "." + long + "." + long[:61]: true,
		"": false, ".": false, "a..b": false, ".a": false, long + "a": false, long + "." + long + "." + long + "." + long[:62]: false,
		"a b": false, "a;b": false, "$(a)": false, "ü": false, "a\n": false,
	} {
		if err := domains.Check(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestAppend(t *testing.T) {
	if got, want := string(domains.Append([]byte("x"), "a.bc", "bc.")), "x\x01a\x02bc\x00\x02bc\x00"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestCompress: an end that was there before is a pointer to it.
func TestCompress(t *testing.T) {
	for _, c := range []struct {
		names []string
		want  string
	}{
		{nil, ""},
		{[]string{"a.bc"}, "\x01a\x02bc\x00"},
		{[]string{"a.bc", "d.bc."}, "\x01a\x02bc\x00\x01d\xc0\x02"},
		{[]string{"a.bc", "a.bc", "bc"}, "\x01a\x02bc\x00\xc0\x00\xc0\x02"},
		{[]string{"bc", "a.bc", "e.a.bc"}, "\x02bc\x00\x01a\xc0\x00\x01e\xc0\x04"},
	} {
		if got := string(domains.Compress(c.names...)); got != c.want {
			t.Errorf("%q: %q, want %q", c.names, got, c.want)
		}
	}
}
