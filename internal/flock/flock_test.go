package flock

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func open(t *testing.T, path string) *os.File {
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestLocks(t *testing.T) {
	dir := t.TempDir()
	first, second := open(t, dir), open(t, dir)
	for _, f := range []*os.File{first, second} {
		if err := Try(f, unix.LOCK_SH); err != nil {
			t.Errorf("shared: %v", err)
		}
	}
	if err := Try(first, unix.LOCK_EX); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("alone, beside another: %v", err)
	}
	asked := 0
	err := Wait(first, unix.LOCK_EX, func() bool { asked++; return asked < 3 })
	if !errors.Is(err, unix.EWOULDBLOCK) || asked != 3 {
		t.Errorf("out of patience after %d questions: %v", asked, err)
	}
	if err := Wait(first, unix.LOCK_EX, func() bool { second.Close(); return true }); err != nil {
		t.Errorf("alone, once the other has gone: %v", err)
	}
	first.Close()
	if err := Wait(first, unix.LOCK_EX, func() bool { return true }); !errors.Is(err, unix.EBADF) {
		t.Errorf("a closed one: %v", err)
	}
}
