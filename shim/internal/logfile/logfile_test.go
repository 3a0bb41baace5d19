package logfile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/shim/internal/logfile"
	"github.com/vmlet/vmlet/shim/internal/rundir"
)

func openLog(t *testing.T, limits logfile.Limits) (*logfile.File, string) {
	t.Helper()
	path := t.TempDir()
	dir, err := rundir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	f, err := logfile.Open(dir, "log", limits)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, path
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestRotation(t *testing.T) {
	for _, files := range []int{1, 2, 3} {
		t.Run(fmt.Sprint(files, " files"), func(t *testing.T) {
			f, path := openLog(t, logfile.Limits{Size: 10, Files: files})
			var all strings.Builder
			for i := range 20 {
				line := fmt.Sprintf("line %02d, ", i)
				all.WriteString(line)
				if n, err := f.Write([]byte(line)); n != len(line) || err != nil {
					t.Fatal(n, err)
				}
			}
			var kept string
			for n := files - 1; n > 0; n-- {
				kept += read(t, filepath.Join(path, fmt.Sprintf("log.%d", n)))
			}
			kept += read(t, filepath.Join(path, "log"))
			if !strings.HasSuffix(all.String(), kept) || len(kept) < 10*(files-1) || len(kept) > 10*files {
				t.Errorf("kept %q", kept)
			}
			if names, _ := os.ReadDir(path); len(names) != files {
				t.Errorf("%d files", len(names))
			}
		})
	}
}

func TestOneLargeWrite(t *testing.T) {
	f, path := openLog(t, logfile.Limits{Size: 100, Files: 2})
	f.Write([]byte(strings.Repeat("x", 1050)))
	if a, b := len(read(t, filepath.Join(path, "log"))), len(read(t, filepath.Join(path, "log.1"))); a != 50 || b != 100 {
		t.Errorf("%d and %d bytes", a, b)
	}
}

// A log goes on where an earlier process has left it.
func TestReopened(t *testing.T) {
	f, path := openLog(t, logfile.Limits{Size: 10, Files: 2})
	f.Write([]byte("12345"))
	f.Close()
	dir, err := rundir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	again, err := logfile.Open(dir, "log", logfile.Limits{Size: 10, Files: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	again.Write([]byte("6789012"))
	if a, b := read(t, filepath.Join(path, "log")), read(t, filepath.Join(path, "log.1")); a != "12" || b != "1234567890" {
		t.Errorf("%q and %q", a, b)
	}
}

func TestTail(t *testing.T) {
	tail := logfile.NewTail(10)
	for _, s := range []string{"abc", "defg", "hijk"} {
		tail.Write([]byte(s))
	}
	for n, want := range map[int]string{-1: "", 0: "", 3: "ijk", 10: "bcdefghijk", 99: "bcdefghijk"} {
		if got := string(tail.Bytes(n)); got != want {
			t.Errorf("last %d: %q, want %q", n, got, want)
		}
	}
	tail.Write([]byte("0123456789ABCDEF"))
	if got := string(tail.Bytes(99)); got != "6789ABCDEF" {
		t.Errorf("after a long write: %q", got)
	}
	if got := logfile.NewTail(10).Bytes(5); len(got) != 0 {
		t.Errorf("of nothing: %q", got)
	}
}

func TestLines(t *testing.T) {
	tail := logfile.NewTail(100)
	tail.Write([]byte("one\ntwo\x1b[31m red\x07\r\nthree \xff\tend\n\n"))
	for n, want := range map[int]string{1: "three ?\tend", 2: "two[31m red\nthree ?\tend", 9: "one\ntwo[31m red\nthree ?\tend"} {
		if got := tail.Lines(n); got != want {
			t.Errorf("last %d lines: %q, want %q", n, got, want)
		}
	}
}
