package fingerprint

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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

// TestContent: a copy of files is the same, and one that was changed is not.
func TestContent(t *testing.T) {
	old := time.Unix(1_700_000_000, 5)
	for _, c := range []struct {
		name   string
		change func(dir string) error
		want   bool // the same
	}{
		{"nothing", func(string) error { return nil }, true},
		{"written anew with the same", func(d string) error {
			_ = os.Remove(d + "/program")
			return write(d+"/program", "program", old)
		}, true},
		{"touched", func(d string) error { return os.Chtimes(d+"/program", old, old.Add(1)) }, false},
		{"longer", func(d string) error { return write(d+"/program", "program ", old) }, false},
		{"another of the same size and time", func(d string) error { return write(d+"/program", "PROGRAM", old) }, false},
		{"no program", func(d string) error { return os.Chmod(d+"/program", 0o600) }, false},
		{"removed", func(d string) error { return os.Remove(d + "/program") }, false},
		{"there, where it was not", func(d string) error { return write(d+"/absent", "", old) }, false},
		{"written in a folder", func(d string) error { return write(d+"/folder/a", "b", old) }, false},
		{"one more in a folder", func(d string) error { return write(d+"/folder/b", "a", old) }, false},
		{"a pipe in its place", func(d string) error { _ = os.Remove(d + "/program"); return unix.Mkfifo(d+"/program", 0o700) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			of := func(change func(string) error) string {
				dir := t.TempDir()
				for _, err := range []error{
					os.Mkdir(dir+"/folder", 0o755), write(dir+"/folder/a", "a", old), write(dir+"/program", "program", old), change(dir),
				} {
					if err != nil {
						t.Fatal(err)
					}
				}
				t.Chdir(dir) // the same names in both
				sum, err := Content([]string{"program", "absent", "folder"})
				if err != nil {
					t.Fatal(err)
				}
				return sum
			}
			before, after := of(func(string) error { return nil }), of(c.change)
			if (before == after) != c.want {
				t.Errorf("before %s, after %s", before, after)
			}
		})
	}
	if _, err := Content([]string{"/dev/null/x"}); err == nil {
		t.Error("what can't be looked at is taken for a file")
	}
}

func write(name, text string, at time.Time) error {
	if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
		return err
	}
	return os.Chtimes(name, at, at)
}
