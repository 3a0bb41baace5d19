package fingerprint

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestOf(t *testing.T) {
	for _, c := range []struct {
		name, of, inside string
		change           func(dir string) error
		want             bool
	}{
		{"nothing", "file", "", func(string) error { return nil }, false},
		{"touched", "file", "", func(d string) error { return os.Chtimes(d+"/file", time.Time{}, time.Unix(1, 0)) }, true},
		{"longer", "file", "", func(d string) error { return os.WriteFile(d+"/file", []byte("longer"), 0o600) }, true},
		{"made executable", "file", "", func(d string) error { return os.Chmod(d+"/file", 0o700) }, true},
		{"replaced", "file", "", func(d string) error { return os.Rename(d+"/other", d+"/file") }, true},
		{"removed", "file", "", func(d string) error { return os.Remove(d + "/file") }, true},
		{"target of a link replaced", "link", "", func(d string) error { return os.Rename(d+"/other", d+"/file") }, true},
		{"link leads elsewhere", "link", "", func(d string) error {
			_ = os.Remove(d + "/link")
			return os.Symlink(d+"/other", d+"/link")
		}, true},
		{"written in a folder", "folder", "*.json", func(d string) error { return os.WriteFile(d+"/folder/a.json", []byte("{ }"), 0o600) }, true},
		{"written in a folder, of which nothing counts", "folder", "", func(d string) error { return os.WriteFile(d+"/folder/a.json", []byte("{ }"), 0o600) }, false},
		{"another kind written", "folder", "*.json", func(d string) error { return os.WriteFile(d+"/folder/a.txt", []byte("longer"), 0o600) }, false},
		{"target of a link in a folder written", "folder", "*.json", func(d string) error { return os.WriteFile(d+"/file", []byte("longer"), 0o600) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, err := range []error{
				os.Mkdir(dir+"/folder", 0o700),
				os.WriteFile(dir+"/file", []byte("x"), 0o600), os.WriteFile(dir+"/other", []byte("x"), 0o600),
				os.WriteFile(dir+"/folder/a.json", []byte("{}"), 0o600), os.WriteFile(dir+"/folder/a.txt", []byte("x"), 0o600),
				os.Symlink("file", dir+"/link"), os.Symlink("../file", dir+"/folder/b.json"),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			of := func() string { return Of(filepath.Join(dir, c.of), c.inside) }
			before := of()
			if err := c.change(dir); err != nil {
				t.Fatal(err)
			}
			if after := of(); (after != before) != c.want {
				t.Errorf("before %s, after %s", before, after)
			}
		})
	}
}

// TestDevice: its use and access to it change nothing.
func TestDevice(t *testing.T) {
	before := Of("/dev/null", "")
	now := time.Now()
	if err := os.Chtimes("/dev/null", now, now); err != nil {
		t.Skip(err)
	}
	if after := Of("/dev/null", ""); after != before || before[0] == '?' {
		t.Errorf("before %s, after %s", before, after)
	}
}
