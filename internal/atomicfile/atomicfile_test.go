package atomicfile

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func writers() map[string]func(string, []byte, fs.FileMode) error {
	return map[string]func(string, []byte, fs.FileMode) error{"Replace": Replace, "ReplaceDurably": ReplaceDurably}
}

func TestReplace(t *testing.T) {
	for name, write := range writers() {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "file")
			for _, c := range []struct {
				content string
				mode    fs.FileMode
			}{{"old and longer", 0o600}, {"new", 0o644}, {"", 0o400}, {"again", 0o666}} {
				if err := write(path, []byte(c.content), c.mode); err != nil {
					t.Fatal(err)
				}
				content, err := os.ReadFile(path)
				if err != nil || string(content) != c.content {
					t.Errorf("%q: content %q, %v", c.content, content, err)
				}
				if info, err := os.Stat(path); err != nil || info.Mode() != c.mode {
					t.Errorf("mode %v, %v, want %v", info.Mode(), err, c.mode)
				}
			}
			wantOnly(t, dir, "file")
		})
	}
}

// TestFailure: the old file stays, and nothing else.
func TestFailure(t *testing.T) {
	for name, write := range writers() {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.MkdirAll(filepath.Join(dir, "folder", "inside"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := write(filepath.Join(dir, "folder"), []byte("x"), 0o600); err == nil {
				t.Error("a folder was replaced by a file")
			}
			wantOnly(t, dir, "folder")
			if err := write(filepath.Join(dir, "nowhere", "file"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("without a folder: %v", err)
			}
		})
	}
}

// TestLink: a link is replaced, and what it leads to is left alone.
func TestLink(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(target, []byte("target"), 0o600), os.Symlink(target, link)); err != nil {
		t.Fatal(err)
	}
	if err := Replace(link, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(target); string(content) != "target" {
		t.Errorf("the target has %q, %v", content, err)
	}
}

// TestAtOnce: whoever wins, the file is one writer's.
func TestAtOnce(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 50 {
				if err := Replace(path, bytes.Repeat([]byte{'a' + byte(i)}, 10_000+i), 0o600); err != nil {
					t.Error(err)
				}
				content, err := os.ReadFile(path)
				if err != nil || len(content) != 10_000+int(content[0]-'a') || bytes.Count(content, content[:1]) != len(content) {
					t.Errorf("%d bytes of more than one writer, %v", len(content), err)
				}
			}
		})
	}
	all.Wait()
	wantOnly(t, dir, "file")
}

func wantOnly(t *testing.T, dir, name string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != name {
		t.Errorf("the folder has %v (%v), want %s alone", entries, err, name)
	}
}

func TestReadOwn(t *testing.T) {
	for name, c := range map[string]struct {
		change func(path string) error
		good   bool
	}{
		"own":              {func(string) error { return nil }, true},
		"others may read":  {func(p string) error { return os.Chmod(p, 0o644) }, true},
		"others may write": {func(p string) error { return os.Chmod(p, 0o666) }, false},
		"too large":        {func(p string) error { return os.Truncate(p, 101) }, false},
		"missing":          {os.Remove, false},
		"a folder":         {func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o700)) }, false},
		"a pipe":           {func(p string) error { return errors.Join(os.Remove(p), unix.Mkfifo(p, 0o600)) }, false},
		"a link":           {func(p string) error { return errors.Join(os.Rename(p, p+".1"), os.Symlink(p+".1", p)) }, false},
		"another user's":   {func(p string) error { return os.Chown(p, 65533, 65533) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file")
			if err := Replace(path, []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := c.change(path); errors.Is(err, fs.ErrPermission) {
				t.Skip(err)
			} else if err != nil {
				t.Fatal(err)
			}
			content, err := ReadOwn(path, 100)
			if c.good != (err == nil) || c.good && string(content) != "mine" {
				t.Errorf("%q, %v", content, err)
			}
		})
	}
}

// TestIsTemp: what others write by a name of that kind is theirs.
func TestIsTemp(t *testing.T) {
	for name, want := range map[string]bool{
		".vm.json.123.tmp": true, ".exit.json.tmp": false, "vm.json.123.tmp": false, ".vm.json.123": false, ".tmp": false, "": false,
	} {
		if got := IsTemp(name); got != want {
			t.Errorf("%q: %t, want %t", name, got, want)
		}
	}
}
