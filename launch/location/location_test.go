package location

import (
	"strings"
	"testing"
)

func TestURL(t *testing.T) {
	for text, want := range map[string]string{
		"http://example.com/disk.img":                       "",
		"https://ann:hush@example.com:8443/a/b?t=hush":      "",
		"ftp://example.com/disk.img":                        `the scheme "ftp"`,
		"file:///etc/passwd":                                `the scheme "file"`,
		"https:///disk.img":                                 "no host",
		"://hush":                                           "this is no URL",
		"http://example.com/" + strings.Repeat("x", maxURL): "at most 4096",
	} {
		u, err := URL(text)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%.40s: %v, want %q in it", text, err, want)
		case err == nil && strings.Contains(Public(u), "hush"):
			t.Errorf("%s has a secret in it", Public(u))
		}
	}
}

func TestHeader(t *testing.T) {
	for line, want := range map[string]string{
		"X-Token: a:b":          "X-Token=a:b",
		"X-Token:\ta \r\n":      "X-Token=a",
		"X-Empty:":              "X-Empty=",
		"X-Token":               "write NAME: VALUE",
		": hush":                "write NAME: VALUE",
		"X Token: hush":         "name has a character",
		"X-Token: hush\r\nA: b": "has a control character",
		strings.Repeat("x", maxHeader) + ": hush": "at most 8192",
	} {
		name, value, err := Header(line)
		got := name + "=" + value
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) || err != nil && strings.Contains(got, "hush") {
			t.Errorf("%.40q: %q, want %q", line, got, want)
		}
	}
}

func TestParseChecksum(t *testing.T) {
	for text, want := range map[string]string{
		"md5:" + strings.Repeat("0", 32):     "",
		"sha1:" + strings.Repeat("aB", 20):   "",
		"SHA256:" + strings.Repeat("0", 64):  "",
		"sha512:" + strings.Repeat("0", 128): "",
		"sha256:" + strings.Repeat("0", 63):  "has 64 hexadecimal digits",
		"sha256:" + strings.Repeat("x", 64):  "has 64 hexadecimal digits",
		"crc32:00000000":                     `algorithm "crc32"`,
		"":                                   "algorithm",
	} {
		if _, err := ParseChecksum(text); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// FuzzLocation: nothing that a user writes makes these panic, and what is taken is bounded.
func FuzzLocation(f *testing.F) {
	f.Add("http://a/b", "X: y", "md5:00")
	f.Fuzz(func(t *testing.T, text, line, sum string) {
		if u, err := URL(text); err == nil && u.Hostname() == "" {
			t.Errorf("%q has no host", text)
		}
		if name, value, err := Header(line); err == nil && strings.ContainsAny(name+value, "\r\n") {
			t.Errorf("%q has lines", line)
		}
		if c, err := ParseChecksum(sum); err == nil && len(c.Want) != c.Hash.Size() {
			t.Errorf("%q has %d bytes", sum, len(c.Want))
		}
	})
}
