package output

import (
	"io"
	"strings"
	"testing"
	"time"
)

func TestAge(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		ago  time.Duration
		want string
	}{
		{-time.Hour, "0s"}, {0, "0s"}, {999 * time.Millisecond, "0s"}, {59 * time.Second, "59s"},
		{time.Minute, "1m"}, {200 * time.Second, "3m20s"}, {2*time.Hour + 59*time.Second, "2h"},
		{26 * time.Hour, "1d2h"}, {24 * 365 * time.Hour, "1y"}, {24 * 400 * time.Hour, "1y35d"},
	} {
		if got := Age(now.Add(-test.ago), now); got != test.want {
			t.Errorf("Age of %v: %s, want %s", test.ago, got, test.want)
		}
	}
}

func TestPrintable(t *testing.T) {
	for _, test := range []struct {
		in    string
		lines bool
		want  string
	}{
		{"plain ü 日", false, "plain ü 日"},
		{"a\nb", true, "a\nb"},
		{"a\nb\tc", false, `a\nb\tc`},
		{"\x1b]0;title\a", true, `\x1b]0;title\a`},
		{"\u009b2J", false, `\u009b2J`},
		{"bidi \u202e", false, `bidi \u202e`},
		{"bad \xff", false, "bad \ufffd"},
		{"proto:\u00a0no", false, "proto: no"},
	} {
		if got := Printable(test.in, test.lines); got != test.want {
			t.Errorf("Printable(%q) = %q, want %q", test.in, got, test.want)
		}
	}
}

func TestColumnsAlign(t *testing.T) {
	var b strings.Builder
	if err := Columns(&b, [][]string{{"A", "B", "C"}, {"long", "", ""}, {"", "x", "tail"}}); err != nil {
		t.Fatal(err)
	}
	want := "A      B   C\nlong   -\n-      x   tail\n"
	if b.String() != want {
		t.Errorf("got\n%q want\n%q", b.String(), want)
	}
}

// TestNarrow: the last column is cut, or goes on below itself; nothing else is touched.
func TestNarrow(t *testing.T) {
	rows := [][]string{{"NAME", "MESSAGE"}, {"ü", "one two three four five six seven"}, {"b", ""}, {"c", strings.Repeat("x", 40)}}
	for _, test := range []struct {
		write func(io.Writer, [][]string, int) error
		width int
		want  string
	}{
		{Clipped, 0, "NAME   MESSAGE\nü      one two three four five six seven\nb\nc      " + strings.Repeat("x", 40) + "\n"},
		{Clipped, 30, "NAME   MESSAGE\nü      one two three four fiv…\nb\nc      " + strings.Repeat("x", 22) + "…\n"},
		{Clipped, 5, "NAME   MESSAGE\nü      one two three four …\nb\nc      " + strings.Repeat("x", 19) + "…\n"},
		{Clipped, 100, "NAME   MESSAGE\nü      one two three four five six seven\nb\nc      " + strings.Repeat("x", 40) + "\n"},
		{Folded, 0, "NAME   MESSAGE\nü      one two three four five six seven\nb\nc      " + strings.Repeat("x", 40) + "\n"},
		{Folded, 30, "NAME   MESSAGE\nü      one two three four five\n       six seven\nb\nc      " + strings.Repeat("x", 23) + "\n       " + strings.Repeat("x", 17) + "\n"},
		{Folded, 1, "NAME   MESSAGE\nü      one two three four\n       five six seven\nb\nc      " + strings.Repeat("x", 20) + "\n       " + strings.Repeat("x", 20) + "\n"},
	} {
		var b strings.Builder
		if err := test.write(&b, rows, test.width); err != nil || b.String() != test.want {
			t.Errorf("width %d: %v, got\n%swant\n%s", test.width, err, b.String(), test.want)
		}
	}
}

func TestFlag(t *testing.T) {
	f := NewFlag(YAML, JSON)
	if f.String() != "yaml" || f.Set("json") != nil || f.Value != JSON {
		t.Errorf("flag %+v", f)
	}
	if err := f.Set("table"); err == nil || !strings.Contains(err.Error(), "yaml, json") {
		t.Errorf("table: %v", err)
	}
}

func TestMilliseconds(t *testing.T) {
	for ms, want := range map[int64]string{0: "0s", 12: "12ms", 1234: "1.2s", 65_000: "1m5s"} {
		if got := Milliseconds(ms); got != want {
			t.Errorf("%d: %s, want %s", ms, got, want)
		}
	}
}
