package memory

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// mount mounts a filesystem for the test, which is skipped where it can't.
func mount(t *testing.T, fstype, data string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount a filesystem")
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, fstype, 0, data); err != nil {
		t.Skipf("mount %s: %v", fstype, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("left mounted: %s: %v", dir, err)
		}
	})
	return dir
}

func fillRandom(t testing.TB, ram *os.File, size int) {
	t.Helper()
	b := make([]byte, size)
	rand.NewChaCha8([32]byte{2}).Read(b)
	if _, err := ram.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
}

func mustBeGone(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there (%v)", path, err)
	}
}

func TestDiskFull(t *testing.T) {
	base := mount(t, "tmpfs", "size=2m")
	ram := newRAM(t, 8<<20)
	fillRandom(t, ram, 8<<20)
	dir := filepath.Join(base, "image")

	var space *SpaceError
	touched := allocated(t, ram)
	if err := CheckSpace(dir, touched); !errors.As(err, &space) || space.Need != touched || space.Available == 0 || space.Available > 2<<20 || space.Dir != base {
		t.Errorf("%v", err)
	}
	w, err := Create(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.CopyMemory(t.Context(), ram, 8<<20, nil); !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), dir) {
		t.Errorf("copy: %v", err)
	}
	if err := w.Abort(); err != nil {
		t.Error(err)
	}
	mustBeGone(t, dir)
}

// TestNoDirectIO: ramfs knows neither direct I/O nor holes.
func TestNoDirectIO(t *testing.T) {
	base := mount(t, "ramfs", "")
	ram := someRAM(t)
	dir, m := saveIn(t, filepath.Join(base, "image"), ram, Options{})
	want := content(t, ram)
	img := open(t, dir)
	if err := img.Verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
	checkFill(t, dir, want)
	if m.DataBytes != 3*PageSize {
		t.Errorf("%d bytes written", m.DataBytes)
	}
	img.Close()
}

// TestDirectRefusedLate: some filesystems refuse only the read or write.
func TestDirectRefusedLate(t *testing.T) {
	d, err := openFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.dir.Close()
	f, err := openDirect(d, "file", unix.O_RDWR|unix.O_CREAT)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if !f.direct() {
		t.Skip("the temporary folder's filesystem has no direct I/O")
	}
	// An odd offset is what direct I/O refuses on any filesystem that has a disk.
	if _, err := f.WriteAt([]byte("text"), 1); err != nil {
		t.Fatal(err)
	}
	if f.direct() {
		t.Skip("the temporary folder's filesystem (a tmpfs?) takes direct I/O at any offset")
	}
	f.tryDirect()
	b := make([]byte, 4)
	if _, err := f.ReadAt(b, 1); err != nil || string(b) != "text" {
		t.Errorf("%q, %v", b, err)
	}
	if f.direct() {
		t.Error("still direct")
	}
}

func TestAbort(t *testing.T) {
	ram := someRAM(t)
	steps := map[string]func(*testing.T, *Writer){
		"at once": func(*testing.T, *Writer) {},
		"after the state": func(t *testing.T, w *Writer) {
			writeState(t, w)
		},
		"after the memory": func(t *testing.T, w *Writer) {
			writeState(t, w)
			if _, err := w.CopyMemory(t.Context(), ram, 5<<20+PageSize, nil); err != nil {
				t.Fatal(err)
			}
		},
		"cancelled while copying": func(t *testing.T, w *Writer) {
			ctx, cancel := context.WithCancel(t.Context())
			w.opts.Workers = 1
			_, err := w.CopyMemory(ctx, ram, 5<<20+PageSize, func(uint64, uint64) { cancel() })
			if !errors.Is(err, context.Canceled) {
				t.Errorf("cancelled: %v", err)
			}
		},
		"after a refused manifest": func(t *testing.T, w *Writer) {
			writeState(t, w)
			if _, err := w.CopyMemory(t.Context(), ram, 5<<20+PageSize, nil); err != nil {
				t.Fatal(err)
			}
			m := manifestFor(1 << 30)
			var format *FormatError
			if err := w.Commit(t.Context(), m); !errors.As(err, &format) {
				t.Errorf("regions beyond memory: %v", err)
			}
		},
		"after an unwritable manifest": func(t *testing.T, w *Writer) {
			writeState(t, w)
			if _, err := w.CopyMemory(t.Context(), ram, 5<<20+PageSize, nil); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(w.Path(), ManifestName), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := w.Commit(t.Context(), manifestFor(5<<20+PageSize)); err == nil {
				t.Error("no error")
			}
			if err := os.Remove(filepath.Join(w.Path(), ManifestName)); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, step := range steps {
		for _, existing := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/existing=%t", name, existing), func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "image")
				if existing {
					if err := os.Mkdir(dir, 0o755); err != nil {
						t.Fatal(err)
					}
				}
				w, err := Create(dir, Options{})
				if err != nil {
					t.Fatal(err)
				}
				step(t, w)
				for range 2 {
					if err := w.Abort(); err != nil {
						t.Error(err)
					}
				}
				if names, err := os.ReadDir(dir); existing && (err != nil || len(names) > 0) {
					t.Errorf("left: %v, %v", names, err)
				} else if !existing {
					mustBeGone(t, dir)
				}
			})
		}
	}
}

func TestAbortAfterCommit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "image")
	w, err := Create(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	ram := someRAM(t)
	stats, err := w.CopyMemory(t.Context(), ram, 5<<20+PageSize, nil)
	if err != nil {
		t.Fatal(err)
	}
	if stats.DataBytes != 3*PageSize || stats.Chunks != 3 {
		t.Errorf("%+v", stats)
	}
	writeState(t, w)
	if err := w.Commit(t.Context(), manifestFor(5<<20+PageSize)); err != nil {
		t.Fatal(err)
	}
	if err := w.Abort(); err != nil {
		t.Error(err)
	}
	if err := open(t, dir).Verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
	for path, mode := range map[string]os.FileMode{"": os.ModeDir | 0o700, ManifestName: 0o600, MemoryName: 0o600, StateName: 0o600} {
		if st, err := os.Lstat(filepath.Join(dir, path)); err != nil || st.Mode() != mode {
			t.Errorf("%s: mode %v, %v; want %v", path, st.Mode(), err, mode)
		}
	}
	mustBeGone(t, filepath.Join(dir, manifestTemp))
}

func TestCreateRefuses(t *testing.T) {
	base := t.TempDir()
	path := func(name string) string { return filepath.Join(base, name) }
	for _, err := range []error{
		os.MkdirAll(path("full/thesis.odt"), 0o700),
		os.MkdirAll(path("mounted/lost+found"), 0o700),
		os.Mkdir(path("killed"), 0o700),
		os.WriteFile(path("killed/memory"), nil, 0o600),
		os.WriteFile(path("file"), nil, 0o600),
		os.Mkdir(path("empty"), 0o700),
		os.Symlink("empty", path("link")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]error{
		"full":         ErrNotEmpty,
		"killed":       ErrNotEmpty,
		"file":         unix.ENOTDIR,
		"link":         unix.ENOTDIR,
		"no/such/path": os.ErrNotExist,
	} {
		if _, err := Create(path(name), Options{}); !errors.Is(err, want) || !strings.Contains(err.Error(), path(name)) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	for _, name := range []string{"mounted", "empty", "new"} {
		w, err := Create(path(name), Options{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := Create(path(name), Options{}); !errors.Is(err, ErrInUse) {
			t.Errorf("%s, a second time: %v", name, err)
		}
		if _, err := LockShared(path(name)); !errors.Is(err, ErrInUse) {
			t.Errorf("%s, to run from: %v", name, err)
		}
		if err := w.Abort(); err != nil {
			t.Error(err)
		}
	}
}

func TestCopyMemoryRefuses(t *testing.T) {
	w, err := Create(filepath.Join(t.TempDir(), "image"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	ram := newRAM(t, 4*PageSize)
	for _, size := range []uint64{0, PageSize + 1, 3 * PageSize, 5 * PageSize, maxMemorySize + PageSize, ^uint64(0)} {
		if _, err := w.CopyMemory(t.Context(), ram, size, nil); err == nil {
			t.Errorf("size %d: no error", size)
		}
	}
	if _, err := w.CopyMemory(t.Context(), ram, 4*PageSize, nil); err != nil {
		t.Errorf("RAM that is a hole: %v", err)
	}
}

// TestTruncatedWhileCopied: the guest's RAM file is cut between two chunks.
func TestTruncatedWhileCopied(t *testing.T) {
	w, err := Create(filepath.Join(t.TempDir(), "image"), Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	ram := newRAM(t, 8<<20)
	fillRandom(t, ram, 8<<20)
	_, err = w.CopyMemory(t.Context(), ram, 8<<20, func(done, _ uint64) {
		if done == 1<<20 {
			if err := ram.Truncate(4 << 20); err != nil {
				t.Error(err)
			}
		}
	})
	if err == nil || !strings.Contains(err.Error(), "ends at offset") {
		t.Errorf("%v", err)
	}
}

func TestFolderReplaced(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "image")
	w, err := Create(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	writeState(t, w)
	if err := os.Rename(dir, dir+"-moved"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := w.Abort(); err == nil {
		t.Error("no error")
	}
	if _, err := os.Lstat(dir); err != nil {
		t.Errorf("removed a folder that it did not make: %v", err)
	}
	if names, err := os.ReadDir(dir + "-moved"); err != nil || len(names) > 0 {
		t.Errorf("left: %v, %v", names, err)
	}
}

func TestCheckSpace(t *testing.T) {
	dir := t.TempDir()
	if err := CheckSpace(filepath.Join(dir, "a/b/c"), PageSize); err != nil {
		t.Error(err)
	}
	var space *SpaceError
	if err := CheckSpace(filepath.Join(dir, "a/b/c"), 1<<62); !errors.As(err, &space) || space.Dir != dir {
		t.Errorf("%v", err)
	}
}

func TestDataRuns(t *testing.T) {
	const gap = 3
	for pages, want := range map[string]string{
		"":           "",
		"....":       "",
		"x":          "0-1",
		"....x":      "4-5",
		"x..x":       "0-4",
		"x...x":      "0-1 4-5",
		".xx....xx.": "1-3 7-9",
		"x.x.x...x":  "0-5 8-9",
	} {
		b := make([]byte, len(pages)*PageSize)
		for i, c := range pages {
			if c == 'x' {
				b[(i+1)*PageSize-1] = 1
			}
		}
		var got []string
		for from, to := range dataRuns(b, gap*PageSize) {
			got = append(got, fmt.Sprintf("%d-%d", from/PageSize, to/PageSize))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %v, want %s", pages, got, want)
		}
	}
}
