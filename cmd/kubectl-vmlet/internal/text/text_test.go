package text_test

import (
	"strings"
	"testing"
	"time"

	"github.com/vmlet/vmlet/cmd/kubectl-vmlet/internal/text"
)

// TestSafe: others' words can't move the cursor, start a line or fill the screen.
func TestSafe(t *testing.T) {
	long := strings.Repeat("a", 5000)
	for name, c := range map[string]struct{ given, want string }{
		"plain":     {"0/3 nodes: größer", "0/3 nodes: größer"},
		"lines":     {" a\r\n\tb\n", "a   b"},
		"escapes":   {"\x1b[2J\x1b]0;title\x07", "?[2J?]0;title?"},
		"C1":        {"a\u009b31mb", "a?31mb"},
		"direction": {"a\u202eb", "a?b"},
		"not UTF-8": {"a\xffb", "a\ufffdb"},
		"long":      {long, long[:2000] + " …"},
	} {
		if got := text.Safe(c.given); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestAge(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for want, then := range map[string]time.Time{
		"-": {}, "30s": now.Add(-30 * time.Second), "5m": now.Add(-5 * time.Minute), "0s": now.Add(time.Hour),
	} {
		if got := text.Age(now, then); got != want {
			t.Errorf("%v: %q, want %q", then, got, want)
		}
	}
}
