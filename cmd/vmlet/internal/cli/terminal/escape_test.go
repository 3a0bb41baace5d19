package terminal_test

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/vmlet/vmlet/cmd/vmlet/internal/cli/terminal"
	"github.com/vmlet/vmlet/cmd/vmlet/internal/cli/terminal/ptytest"
)

func TestParseEscape(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"^]", "^]"}, {"^a", "^A"}, {"^@", "^@"}, {"^_", "^_"}, {"~", "~"}, {"none", "none"}, {"^", "^"},
	} {
		e, err := terminal.ParseEscape(test.in)
		if err != nil || e.String() != test.want {
			t.Errorf("%q: %v, %v", test.in, e, err)
		}
	}
	for _, in := range []string{"", "ab", "^1", "^^^", " ", "\x1d", "ü", "None"} {
		if e, err := terminal.ParseEscape(in); err == nil {
			t.Errorf("%q is %v", in, e)
		}
	}
}

func TestEscapeReader(t *testing.T) {
	key, err := terminal.ParseEscape("^]")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		in, want string
		left     bool
	}{
		{"", "", false}, {"abc", "abc", false}, {"ab\x1dcd", "ab", true}, {"\x1d", "", true}, {"a\x1d\x1d", "a", true},
	} {
		for name, r := range map[string]io.Reader{"whole": strings.NewReader(test.in), "bytes": iotest.OneByteReader(strings.NewReader(test.in))} {
			got, err := io.ReadAll(key.Reader(r))
			if string(got) != test.want || errors.Is(err, terminal.ErrEscape) != test.left {
				t.Errorf("%q by %s: %q, %v", test.in, name, got, err)
			}
		}
	}
	var none terminal.Escape
	if got, err := io.ReadAll(none.Reader(strings.NewReader("a\x1db"))); string(got) != "a\x1db" || err != nil {
		t.Errorf("without a key: %q, %v", got, err)
	}
}

func TestRaw(t *testing.T) {
	_, tty := ptytest.Open(t)
	before := ptytest.Modes(t, tty)
	restore, err := terminal.Raw(tty)
	if err != nil {
		t.Fatal(err)
	}
	if ptytest.Modes(t, tty) == before {
		t.Error("raw mode changes nothing")
	}
	restore()
	if ptytest.Modes(t, tty) != before {
		t.Error("the modes were not restored")
	}
}

func TestRawOfNoTerminal(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/f")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, v := range []any{strings.NewReader(""), file, nil} {
		restore, err := terminal.Raw(v)
		if err != nil || terminal.Is(v) {
			t.Errorf("%T: %v", v, err)
			continue
		}
		restore()
	}
}
