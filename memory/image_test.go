package memory

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/test/hugetlb"
)

// someRAM returns 5 MiB and a page of RAM: data in chunks 0, 2 and 5, a hole else.
func someRAM(t testing.TB) *os.File {
	t.Helper()
	ram := newRAM(t, 5<<20+PageSize)
	rnd := rand.NewChaCha8([32]byte{1})
	for _, at := range []int64{0, 2<<20 + 8*PageSize, 5 << 20} {
		b := make([]byte, PageSize)
		rnd.Read(b)
		if _, err := ram.WriteAt(b, at); err != nil {
			t.Fatal(err)
		}
	}
	return ram
}

func TestDamage(t *testing.T) {
	write := func(name string, off int64, b ...byte) func(string) error {
		return func(dir string) error {
			f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteAt(b, off)
			return err
		}
	}
	flip := func(name string, off int64) func(string) error {
		return func(dir string) error {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				return err
			}
			return write(name, off, b[off]^0x10)(dir)
		}
	}
	truncate := func(name string, size int64) func(string) error {
		return func(dir string) error { return os.Truncate(filepath.Join(dir, name), size) }
	}
	replace := func(name string, make func(path string) error) func(string) error {
		return func(dir string) error {
			path := filepath.Join(dir, name)
			if err := os.Rename(path, path+"-elsewhere"); err != nil {
				return err
			}
			return make(path)
		}
	}
	link := func(path string) error { return os.Symlink(path+"-elsewhere", path) }
	fifo := func(path string) error { return unix.Mkfifo(path, 0o600) }
	swap := func(dir string) error {
		return unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, MemoryName), unix.AT_FDCWD, filepath.Join(dir, StateName), unix.RENAME_EXCHANGE)
	}
	const anywhere = -1
	tests := []struct {
		name   string
		damage func(dir string) error
		atOpen bool
		file   string
		offset int64
	}{
		{"flip at the start", flip(MemoryName, 0), false, MemoryName, 0},
		{"flip in the middle", flip(MemoryName, 2<<20+9*PageSize-1), false, MemoryName, 2 << 20},
		{"flip in the last page", flip(MemoryName, 5<<20+100), false, MemoryName, 5 << 20},
		{"flip in a hole of a chunk", flip(MemoryName, 900<<10), false, MemoryName, 0},
		{"data in a chunk that is a hole", write(MemoryName, 3<<20+77, 1), false, MemoryName, 3 << 20},
		{"data lost", func(dir string) error {
			if err := truncate(MemoryName, 5<<20)(dir); err != nil {
				return err
			}
			return truncate(MemoryName, 5<<20+PageSize)(dir)
		}, false, MemoryName, 5 << 20},
		{"memory truncated", truncate(MemoryName, 5<<20), true, MemoryName, anywhere},
		{"memory longer", truncate(MemoryName, 6<<20), true, MemoryName, anywhere},
		{"state flipped", flip(StateName, 3), false, StateName, anywhere},
		{"state truncated", truncate(StateName, 3), true, StateName, anywhere},
		{"state empty", truncate(StateName, 0), true, StateName, anywhere},
		{"manifest flipped", flip(ManifestName, 200), true, ManifestName, anywhere},
		{"manifest truncated", truncate(ManifestName, 200), true, ManifestName, 200},
		{"swapped", swap, true, MemoryName, anywhere},
		{"no memory", replace(MemoryName, func(string) error { return nil }), true, MemoryName, anywhere},
		{"no state", replace(StateName, func(string) error { return nil }), true, StateName, anywhere},
		{"memory is a link", replace(MemoryName, link), true, MemoryName, anywhere},
		{"state is a link", replace(StateName, link), true, StateName, anywhere},
		{"manifest is a link", replace(ManifestName, link), true, ManifestName, anywhere},
		{"state is a FIFO", replace(StateName, fifo), true, StateName, anywhere},
		{"state is a folder", replace(StateName, func(p string) error { return os.Mkdir(p, 0o700) }), true, StateName, anywhere},
	}
	ram := someRAM(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir, _ := save(t, ram, Options{})
			if err := tt.damage(dir); err != nil {
				t.Fatal(err)
			}
			img, err := Open(dir)
			if tt.atOpen {
				if err == nil {
					img.Close()
				}
				checkDamage(t, err, filepath.Join(dir, tt.file), tt.offset)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer img.Close()
			checkDamage(t, img.Verify(t.Context(), nil), filepath.Join(dir, tt.file), tt.offset)
			err = img.Fill(t.Context(), newRAM(t, 5<<20+PageSize), 0, nil)
			if tt.file == StateName {
				if err != nil {
					t.Errorf("fill: %v", err)
				}
				err = img.VerifyState(t.Context())
			}
			checkDamage(t, err, filepath.Join(dir, tt.file), tt.offset)
		})
	}
}

func checkDamage(t *testing.T, err error, path string, offset int64) {
	t.Helper()
	var damaged *DamagedError
	if !errors.As(err, &damaged) {
		t.Fatalf("%v is no DamagedError", err)
	}
	if damaged.Path != path || damaged.Offset != offset && filepath.Base(path) != ManifestName {
		t.Errorf("%v: want %s, offset %d", err, path, offset)
	}
	if offset >= 0 && damaged.Chunk >= 0 && damaged.Chunk != offset>>20 {
		t.Errorf("%v: want chunk %d", err, offset>>20)
	}
}

// TestDenseCopy: an image copied by a tool that knows no holes is as good.
func TestDenseCopy(t *testing.T) {
	ram := someRAM(t)
	dir, _ := save(t, ram, Options{})
	path := filepath.Join(dir, MemoryName)
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := open(t, dir).Verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
	checkFill(t, dir, content(t, ram))
}

func TestOpenNoImage(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir); !errors.Is(err, ErrNotImage) || errors.Is(err, ErrUnfinished) {
		t.Errorf("empty folder: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, MemoryName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); !errors.Is(err, ErrNotImage) || !errors.Is(err, ErrUnfinished) {
		t.Errorf("unfinished: %v", err)
	}
	if _, err := Open(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
	if err := os.Symlink(dir, dir+"-link"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir + "-link"); err == nil {
		t.Error("followed a symbolic link to a folder")
	}
}

func TestStreamLayout(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "image")
	w, err := Create(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	writeState(t, w)
	m := manifestFor(1 << 20)
	if err := w.Commit(t.Context(), m); err == nil {
		t.Fatal("layout raw without memory: no error")
	}
	m.Layout = LayoutStream
	if err := w.Commit(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	img := open(t, dir)
	if err := img.Verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if err := img.Fill(t.Context(), newRAM(t, 1<<20), 0, nil); !errors.Is(err, ErrStreamLayout) {
		t.Errorf("fill: %v", err)
	}
	if img.MemoryFile() != nil || string(content(t, img.StateFile())) != testState {
		t.Error("memory is there, or state is wrong")
	}
}

func TestLocks(t *testing.T) {
	dir, _ := save(t, someRAM(t), Options{})
	img := open(t, dir)
	var locks []*Lock
	for range 2 { // side by side
		l, err := img.LockShared()
		if err != nil {
			t.Fatal(err)
		}
		locks = append(locks, l)
	}
	img.Close()
	for i, l := range locks {
		if _, err := Create(dir, Options{}); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), dir) {
			t.Errorf("create with %d locks: %v", 2-i, err)
		}
		if err := Remove(dir); !errors.Is(err, ErrInUse) {
			t.Errorf("remove with %d locks: %v", 2-i, err)
		}
		if err := l.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Create(dir, Options{}); !errors.Is(err, ErrNotEmpty) || errors.Is(err, ErrInUse) {
		t.Errorf("create over an image: %v", err)
	}
	if err := Remove(dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("removed: %v", err)
	}
}

func TestRemoveKeepsStrangers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, StateName)
	for _, name := range []string{StateName, "thesis.odt"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Remove(dir); !errors.Is(err, ErrNotImage) {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
}

// TestRemoveFromMount: the folder of a filesystem's root stays.
func TestRemoveFromMount(t *testing.T) {
	base := mount(t, "tmpfs", "size=16m")
	dir, _ := saveIn(t, base, someRAM(t), Options{})
	if err := Remove(dir); err != nil {
		t.Error(err)
	}
	if names, err := os.ReadDir(base); err != nil || len(names) > 0 {
		t.Errorf("left: %v, %v", names, err)
	}
}

func TestVerifyCancelled(t *testing.T) {
	dir, _ := save(t, someRAM(t), Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var calls int
	err := open(t, dir).Verify(ctx, func(done, _ uint64) { calls++; cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v after %d calls", err, calls)
	}
}

func TestHugePages(t *testing.T) {
	size := uint64(8 << 20)
	hugetlb.Mount(t, 2*int(size/hugetlb.Page))
	ram := newMemfd(t, size, unix.MFD_HUGETLB|unix.MFD_HUGE_2MB)
	want := make([]byte, size)
	copy(want[3<<20:], "some data")
	copy(want[5<<20+7*PageSize:], "more data")
	w, err := newRAMWriter(ram, size)
	if err != nil {
		t.Fatal(err)
	}
	for _, off := range []uint64{3 << 20, 5<<20 + 7*PageSize} {
		if err := w.write(want[off:off+PageSize], off); err != nil {
			t.Fatal(err)
		}
	}
	w.close()
	if got := allocated(t, ram); got != 4<<20 {
		t.Errorf("touched %d", got)
	}
	dir, m := save(t, ram, Options{})
	if got := allocated(t, ram); got != 4<<20 {
		t.Errorf("the save allocated huge pages: %d bytes", got)
	}
	ram.Close()
	checkImage(t, dir, want, m)

	ram = newMemfd(t, size, unix.MFD_HUGETLB|unix.MFD_HUGE_2MB)
	if err := open(t, dir).Fill(t.Context(), ram, 0, nil); err != nil {
		t.Fatal(err)
	}
	if got := content(t, ram); string(got) != string(want) {
		t.Error("the filled RAM is not what was saved")
	}
	if got := allocated(t, ram); got != 4<<20 {
		t.Errorf("the fill allocated %d bytes of huge pages", got)
	}
}

// TestTruncatedMapping: a hugetlbfs file cut while it is filled is an error.
func TestTruncatedMapping(t *testing.T) {
	ram := newRAM(t, 4*PageSize)
	b, err := unix.Mmap(int(ram.Fd()), 0, 4*PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer freeBuffer(b)
	if err := copyGuarded(b, make([]byte, PageSize)); err != nil {
		t.Fatal(err)
	}
	if err := ram.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if err := copyGuarded(b, make([]byte, PageSize)); err == nil {
		t.Error("no error")
	}
}

// TestReadFullShort: RAM that ends early is an error, not zeros.
func TestReadFullShort(t *testing.T) {
	err := readFull(newRAM(t, PageSize), make([]byte, 2*PageSize), 0)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
}
