package selector

import (
	"strings"
	"testing"
)

// FuzzParse: a selector is refused, or has of a single label only whoever has it.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "a=b", "a==b", "a!=b", "a", "!a", "a=b,c==d,e!=f,g,!h", " a = b , ! c", "a in (b)", "=", ",", "a=b=c", "\x00=\xff"} {
		f.Add(s, "a", "b")
	}
	f.Fuzz(func(t *testing.T, text, key, value string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		with, without := s.Matches(map[string]string{key: value}), s.Matches(nil)
		if !strings.Contains(text, key) && with != without {
			t.Errorf("%q takes %q=%q: %v, and nothing: %v", text, key, value, with, without)
		}
		if again, err := Parse(" " + text + " "); err != nil || again.Matches(map[string]string{key: value}) != with {
			t.Errorf("%q with spaces about it: %v", text, err)
		}
	})
}
