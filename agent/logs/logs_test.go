package logs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, path, content string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString(content)
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestTail(t *testing.T) {
	long := strings.Repeat("x", 40<<10)
	for _, c := range []struct {
		old, now string
		lines    int
		want     string
	}{
		{"", "", 3, ""},
		{"", "a\nb\nc\n", 0, "a\nb\nc\n"},
		{"", "a\nb\nc\n", 2, "b\nc\n"},
		{"", "a\nb\nc", 2, "b\nc"},
		{"", "a\nb\n", 9, "a\nb\n"},
		{"1\n2\n", "3\n", 2, "2\n3\n"},
		{"1\n2\n", "3\n", 1, "3\n"},
		{"1\n2\n", "", 1, "2\n"},
		{"1\n2\n", "3\n", 0, "1\n2\n3\n"},
		{"1\n", "a\n" + long + "\nb\n", 2, long + "\nb\n"},
		{"half a ", "line\nb\n", 2, "half a line\nb\n"},
	} {
		dir := t.TempDir()
		if c.old != "" {
			write(t, filepath.Join(dir, "log.1"), c.old)
		}
		write(t, filepath.Join(dir, "log"), c.now)
		var got strings.Builder
		err := Read(t.Context(), Options{Dir: dir, Name: "log", TailLines: c.lines, PieceSize: 1000},
			func(b []byte) error { got.Write(b); return nil })
		if err != nil || got.String() != c.want {
			t.Errorf("%d lines of %.20q, %.20q: %.40q, %v; want %.40q", c.lines, c.old, c.now, got.String(), err, c.want)
		}
	}
}

// TestFollow writes and rotates only when the line before has come through.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got strings.Builder
	next := 0
	step := func() {
		if next == 30 {
			cancel()
			return
		}
		if next%10 == 5 {
			if err := os.Rename(path, path+".1"); err != nil {
				t.Error(err)
			}
		}
		write(t, path, fmt.Sprintf("line %d\n", next))
		next++
	}
	step()
	err := Read(ctx, Options{Dir: dir, Name: "log", Follow: true, PieceSize: 1000}, func(b []byte) error {
		got.Write(b)
		if strings.Count(got.String(), "\n") == next {
			step()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("following ended with %v", err)
	}
	var want strings.Builder
	for i := range 30 {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	if got.String() != want.String() {
		t.Errorf("followed %q", got.String())
	}
}

// TestFollowFromNothing waits for a log that is not there yet.
func TestFollowFromNothing(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pieces := make(chan string)
	ended := make(chan error, 1)
	go func() {
		ended <- Read(ctx, Options{Dir: dir, Name: "log", Follow: true, PieceSize: 100}, func(b []byte) error {
			pieces <- string(b)
			return nil
		})
	}()
	write(t, filepath.Join(dir, "log"), "hello")
	if got := <-pieces; got != "hello" {
		t.Errorf("got %q", got)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}
