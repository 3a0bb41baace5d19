package logs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestHostileFolder: a pod may have anything in place of its VM's logs. Nothing
// outside of its folder is read, and nothing is waited for.
func TestHostileFolder(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	write(t, secret, "the node's")
	link := func(to string) func(string) error { return func(at string) error { return os.Symlink(to, at) } }
	relative := "../" + filepath.Base(filepath.Dir(secret)) + "/secret"
	for name, make := range map[string]func(at string) error{
		"link":             link(secret),
		"relative link":    link(relative),
		"link in a circle": func(at string) error { return os.Symlink(filepath.Base(at), at) },
		"link to /proc":    link("/proc/self/environ"),
		"FIFO":             func(at string) error { return unix.Mkfifo(at, 0o666) },
		"folder":           func(at string) error { return os.Mkdir(at, 0o777) },
		"socket": func(at string) error {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Bind(fd, &unix.SockaddrUnix{Name: at})
		},
	} {
		for _, at := range []string{"log", "log.1"} {
			t.Run(name+" as "+at, func(t *testing.T) {
				dir := t.TempDir()
				if at != "log" {
					write(t, filepath.Join(dir, "log"), "its own\n")
				}
				if err := make(filepath.Join(dir, at)); err != nil {
					t.Fatal(err)
				}
				got, err := readAll(t, dir)
				if err == nil || got != "" {
					t.Errorf("read %q, %v; want nothing, and an error", got, err)
				}
			})
		}
	}
}

// TestLinkWhileFollowed puts a link in the place of a log that is being followed.
func TestLinkWhileFollowed(t *testing.T) {
	secret, dir := filepath.Join(t.TempDir(), "secret"), t.TempDir()
	write(t, secret, "the node's")
	log := filepath.Join(dir, "log")
	write(t, log, "first\n")
	var got strings.Builder
	err := Read(t.Context(), Options{Dir: dir, Name: "log", Follow: true, PieceSize: 1000}, func(b []byte) error {
		got.Write(b)
		if err := os.Symlink(secret, log+".new"); err != nil {
			return err
		}
		return os.Rename(log+".new", log)
	})
	if err == nil || got.String() != "first\n" {
		t.Errorf("read %q, %v; want the first line alone, and an error", got.String(), err)
	}
}

func readAll(t *testing.T, dir string) (string, error) {
	t.Helper()
	var got strings.Builder
	err := Read(t.Context(), Options{Dir: dir, Name: "log", PieceSize: 1000}, func(b []byte) error { got.Write(b); return nil })
	return got.String(), err
}

// FuzzTail compares the last lines of any content with those found by splitting it.
func FuzzTail(f *testing.F) {
	f.Add("a\nb\n", "c\nd", uint8(2))
	f.Add("", "\n\n\n", uint8(1))
	f.Add("\n", "", uint8(1))
	f.Add(strings.Repeat("x", 17<<10)+"\n", strings.Repeat("y\n", 9<<10), uint8(200))
	f.Fuzz(func(t *testing.T, older, newer string, lines uint8) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "log.1"), older)
		write(t, filepath.Join(dir, "log"), newer)
		var got strings.Builder
		err := Read(t.Context(), Options{Dir: dir, Name: "log", TailLines: int(lines), PieceSize: 100},
			func(b []byte) error { got.Write(b); return nil })
		if err != nil {
			t.Fatal(err)
		}
		if want := lastLines(older+newer, int(lines)); got.String() != want {
			t.Errorf("%d lines of %.100q and %.100q: %.200q, want %.200q", lines, older, newer, got.String(), want)
		}
	})
}

func lastLines(text string, n int) string {
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	if n == 0 || n >= len(lines) {
		return text
	}
	return strings.Join(lines[len(lines)-n:], "")
}
