package driver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLooksSaved: what QEMU says that it has saved is looked at.
func TestLooksSaved(t *testing.T) {
	for content, want := range map[string]string{
		"":                                  "is empty",
		"QEVM":                              "begins with",
		"QEVM\x00\x00\x00\x04" + "more":     "begins with",
		strings.Repeat("\x00", 1<<16):       "begins with",
		"QEVM\x00\x00\x00\x03" + "\x07more": "",
	} {
		path := filepath.Join(t.TempDir(), "state")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		err = looksSaved(f)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.10q: %v, want %q", content, err, want)
		}
	}
}
