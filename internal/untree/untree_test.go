package untree_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/untree"
)

// deep makes folders in each other, with a file beside each.
func deep(t *testing.T, dir string, levels int) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range levels {
		err := errors.Join(unix.Mkdirat(at, "d", 0o700), unix.Mknodat(at, "f", unix.S_IFREG|0o600, 0))
		if err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(at, "d", unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(at)
		at = next
	}
	unix.Close(at)
}

func open(t *testing.T) (*os.Root, string) {
	t.Helper()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root, dir
}

func TestRemoveAll(t *testing.T) {
	for name, fill := range map[string]func(t *testing.T, path string){
		"nothing": func(*testing.T, string) {},
		"file":    func(t *testing.T, path string) { check(t, os.WriteFile(path, nil, 0)) },
		"link":    func(t *testing.T, path string) { check(t, os.Symlink("../keep", path)) },
		"empty":   func(t *testing.T, path string) { check(t, os.Mkdir(path, 0)) },
		"many": func(t *testing.T, path string) {
			for i := range 1000 {
				check(t, os.MkdirAll(filepath.Join(path, fmt.Sprint(i%3), fmt.Sprint(i), "x"), 0o700))
			}
		},
		"all kinds": func(t *testing.T, path string) {
			check(t, os.Mkdir(path, 0o700))
			check(t, os.Mkdir(filepath.Join(path, "d"), 0o700))
			for _, dir := range []string{path, filepath.Join(path, "d")} {
				check(t, os.Symlink(filepath.Join(filepath.Dir(path), "keep"), filepath.Join(dir, "out")))
				check(t, os.Symlink(".", filepath.Join(dir, "self")))
				check(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0))
				check(t, os.WriteFile(filepath.Join(dir, "\xff\n"), nil, 0))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			root, dir := open(t)
			check(t, os.MkdirAll(filepath.Join(dir, "keep", "this"), 0o700))
			fill(t, filepath.Join(dir, "x"))
			check(t, untree.RemoveAll(t.Context(), root, "x"))
			if left, err := os.ReadDir(dir); len(left) != 1 || err != nil {
				t.Errorf("left: %v, %v", left, err)
			}
			if _, err := os.Stat(filepath.Join(dir, "keep", "this")); err != nil {
				t.Error(err)
			}
		})
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestDeep has more folders in each other than descriptors may be open.
func TestDeep(t *testing.T) {
	root, dir := open(t)
	check(t, os.Mkdir(filepath.Join(dir, "x"), 0o700))
	deep(t, filepath.Join(dir, "x"), 3000)
	var before unix.Rlimit
	check(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	few := before
	few.Cur = 100
	check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &before)
	if err := root.RemoveAll("x"); !errors.Is(err, unix.EMFILE) {
		t.Errorf("os: %v: this tests nothing", err)
	}
	check(t, untree.RemoveAll(t.Context(), root, "x"))
	if _, err := os.Lstat(filepath.Join(dir, "x")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestFilledMeanwhile: somebody who makes files as fast as they are removed is given
// up on.
func TestFilledMeanwhile(t *testing.T) {
	root, dir := open(t)
	path := filepath.Join(dir, "x")
	check(t, os.Mkdir(path, 0o700))
	check(t, os.WriteFile(filepath.Join(path, "first"), nil, 0))
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	filled := make(chan struct{})
	go func() {
		defer close(filled)
		for i := 0; ctx.Err() == nil; i++ {
			if i == 5000 {
				cancel(enough)
			}
			if os.WriteFile(filepath.Join(path, fmt.Sprint(i)), nil, 0) != nil {
				cancel(nil)
			}
		}
	}()
	if err := untree.RemoveAll(ctx, root, "x"); err != nil && !errors.Is(err, enough) {
		t.Error(err)
	}
	<-filled
	check(t, untree.RemoveAll(t.Context(), root, "x"))
}
