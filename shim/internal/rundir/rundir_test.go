package rundir_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/shim/internal/rundir"
)

func open(t *testing.T, path string) *rundir.Dir {
	t.Helper()
	d, err := rundir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// The path is longer than sockaddr_un takes.
func TestSocketAtTheEndOfALongPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), strings.Repeat("a", 120), strings.Repeat("b", 120))
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	d := open(t, path)
	for range 2 { // the second takes the place of what the first has left
		file, err := d.Listen("x.sock")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		st, err := os.Lstat(filepath.Join(path, "x.sock"))
		if err != nil || st.Mode() != os.ModeSocket|0o600 {
			t.Errorf("mode %v, %v", st.Mode(), err)
		}
		l, err := net.FileListener(file)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := d.Dial(context.Background(), "x.sock")
		if err != nil {
			t.Fatal(err)
		}
		peer, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		peer.Write([]byte("hello"))
		peer.Close()
		if b, err := io.ReadAll(conn); string(b) != "hello" || err != nil {
			t.Errorf("%q, %v", b, err)
		}
	}
}

func TestNothingLeadsOutOfIt(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "dir")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../secret", filepath.Join(path, "link")); err != nil {
		t.Fatal(err)
	}
	d := open(t, path)
	for _, name := range []string{"link", "../secret", "/etc/passwd", "..", ".", "", "a/b", "a\x00", strings.Repeat("n", 65)} {
		if b, err := d.ReadFile(name, 100); err == nil {
			t.Errorf("%q: read %q", name, b)
		}
		_, err := d.Dial(context.Background(), name)
		if err == nil {
			t.Errorf("%q: connected", name)
		}
		if name == "link" {
			if !errors.Is(err, unix.ENOTSOCK) {
				t.Errorf("%q: %v, want that it is no socket", name, err)
			}
			continue
		}
		if _, err := d.Listen(name); err == nil {
			t.Errorf("%q: bound", name)
		}
		if err := d.WriteFile(name, nil, 0o600); err == nil {
			t.Errorf("%q: written", name)
		}
	}
}

func TestFiles(t *testing.T) {
	path := t.TempDir()
	d := open(t, path)
	for _, content := range []string{"first", "second"} {
		if err := d.WriteFile("f", []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if b, err := d.ReadFile("f", 6); string(b) != content || err != nil {
			t.Errorf("%q, %v", b, err)
		}
	}
	if _, err := d.ReadFile("f", 5); err == nil {
		t.Error("read more than the limit")
	}
	broken := errors.New("broken")
	if err := d.WriteFrom("f", strings.NewReader("third"), 0o600, func(*os.File) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	if b, err := d.ReadFile("f", 6); string(b) != "second" || err != nil {
		t.Errorf("after a write that failed: %q, %v", b, err)
	}
	if err := errors.Join(d.Rename("f", "g"), d.Remove("g"), d.Remove("g")); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(path); len(left) != 0 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := d.ReadFile("f", 5); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	if err := unix.Mkfifo(filepath.Join(path, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.ReadFile("fifo", 5); err == nil {
		t.Error("read a FIFO")
	}
}

// TestReadFileOfAnySize: files of more than what is read at first, up to the limit.
func TestReadFileOfAnySize(t *testing.T) {
	const first = 8 << 10
	path := t.TempDir()
	d := open(t, path)
	for _, size := range []int{0, 1, first - 1, first, first + 1, 2 * first, 5*first + 3} {
		content := bytes.Repeat([]byte("abc"), size)[:size]
		if err := os.WriteFile(filepath.Join(path, "f"), content, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, limit := range []int{size, size + 1, 1 << 20} {
			if b, err := d.ReadFile("f", limit); err != nil || !bytes.Equal(b, content) {
				t.Errorf("%d bytes with a limit of %d: read %d: %v", size, limit, len(b), err)
			}
		}
		if size == 0 {
			continue
		}
		if _, err := d.ReadFile("f", size-1); err == nil {
			t.Errorf("%d bytes were read with a limit of one less", size)
		}
	}
}
