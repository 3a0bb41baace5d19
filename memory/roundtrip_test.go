package memory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// newRAM returns a memfd of size bytes, a hole.
func newRAM(t testing.TB, size uint64) *os.File {
	t.Helper()
	return newMemfd(t, size, 0)
}

func newMemfd(t testing.TB, size uint64, flags int) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("ram", unix.MFD_CLOEXEC|flags)
	if err != nil {
		t.Fatalf("memfd_create: %v", err)
	}
	f := os.NewFile(uintptr(fd), "memfd:ram")
	t.Cleanup(func() { f.Close() })
	if err := f.Truncate(int64(size)); err != nil {
		t.Fatal(err)
	}
	return f
}

// manifestFor returns what a caller knows about guest RAM of size bytes.
func manifestFor(size uint64) *Manifest {
	return &Manifest{
		VMM:           VMM{Name: "qemu", Version: "7.2.22"},
		Accelerator:   "kvm",
		MachineType:   "pc-q35-7.2",
		CPU:           CPU{Model: "host", Features: []string{"-arch-capabilities"}},
		MemorySize:    size,
		Regions:       []Region{{Name: "m0", Size: size}},
		Specification: []byte(`{"name":"web"}`),
	}
}

const testState = "device state"

// save makes an image of ram in a new folder.
func save(t testing.TB, ram *os.File, opts Options) (dir string, m *Manifest) {
	t.Helper()
	return saveIn(t, filepath.Join(t.TempDir(), "image"), ram, opts)
}

func saveIn(t testing.TB, dir string, ram *os.File, opts Options) (string, *Manifest) {
	t.Helper()
	w, err := Create(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	size := fileSize(t, ram)
	if _, err := w.CopyMemory(t.Context(), ram, size, nil); err != nil {
		t.Fatal(err)
	}
	writeState(t, w)
	m := manifestFor(size)
	if err := w.Commit(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	return dir, m
}

func writeState(t testing.TB, w *Writer) {
	t.Helper()
	state, err := w.StateFile()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(state, testState); err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, dir string) *Image {
	t.Helper()
	img, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { img.Close() })
	return img
}

// TestOpenIn: an image in a folder that is open by O_PATH alone, as one that another pod hands out is, can be
// read, marked and told apart from what is not the name of a folder in there.
func TestOpenIn(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "image")
	saveIn(t, dir, newRAM(t, 4*PageSize), Options{})
	fd, err := unix.Open(parent, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	folder := os.NewFile(uintptr(fd), parent)
	defer folder.Close()
	img, err := OpenIn(folder, "image")
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	if img.Path() != "image" {
		t.Errorf("path %q", img.Path())
	}
	if err := img.Verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if err := img.MarkUsed("somebody"); err != nil {
		t.Error(err)
	}
	if err := open(t, dir).CheckUnused(); !errors.As(err, new(*UsedError)) {
		t.Errorf("the image there is not marked: %v", err)
	}
	for _, name := range []string{"", ".", "..", "a/b", dir, "a\x00"} {
		if img, err := OpenIn(folder, name); err == nil {
			img.Close()
			t.Errorf("%q is opened", name)
		}
	}
	if _, err := OpenIn(folder, "other"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("one that is not there: %v", err)
	}
}

func fileSize(t testing.TB, f *os.File) uint64 {
	t.Helper()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return uint64(st.Size())
}

func allocated(t testing.TB, f *os.File) uint64 {
	t.Helper()
	n, err := TouchedBytes(f)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestEmpty: RAM that was given back takes no memory, reads as zeros and has its size.
func TestEmpty(t *testing.T) {
	ram := newRAM(t, 8*PageSize)
	if _, err := ram.WriteAt(bytes.Repeat([]byte{1}, 3*PageSize), PageSize); err != nil {
		t.Fatal(err)
	}
	if err := Empty(ram); err != nil {
		t.Fatal(err)
	}
	if n := allocated(t, ram); n != 0 {
		t.Errorf("%d bytes are allocated, want 0", n)
	}
	if !bytes.Equal(content(t, ram), make([]byte, 8*PageSize)) {
		t.Error("content differs from 8 pages of zeros")
	}
}

func content(t testing.TB, f *os.File) []byte {
	t.Helper()
	b := make([]byte, fileSize(t, f))
	if err := readFull(f, b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

// scribble writes a random pattern of runs: random bytes, zeros, single bytes
// at a page's end, holes between.
func scribble(t testing.TB, rnd *rand.Rand, ram *os.File) {
	t.Helper()
	size := int(fileSize(t, ram))
	for range rnd.IntN(40) {
		pages := 1 + rnd.IntN(1<<rnd.IntN(10))
		start := rnd.IntN(size/PageSize) * PageSize
		b := make([]byte, min(pages*PageSize, size-start))
		switch rnd.IntN(4) {
		case 0: // touched, but zero
		case 1:
			b[len(b)-1] = 1
		case 2:
			for p := 0; p < len(b); p += PageSize << rnd.IntN(3) {
				b[p+rnd.IntN(PageSize)] = byte(rnd.Uint32())
			}
		default:
			for i := range b {
				b[i] = byte(rnd.Uint32())
			}
		}
		if _, err := ram.WriteAt(b, int64(start)); err != nil {
			t.Fatal(err)
		}
	}
}

// nonZeroPages is the least that must be allocated for b.
func nonZeroPages(b []byte) (n uint64) {
	for from, to := range dataRuns(b, 0) {
		n += uint64(to - from)
	}
	return n
}

func TestRoundTrip(t *testing.T) {
	filesystems := map[string]string{"disk": t.TempDir()}
	if dir, err := os.MkdirTemp("/dev/shm", "memory-test"); err == nil {
		t.Cleanup(func() { os.RemoveAll(dir) })
		filesystems["tmpfs"] = dir
	}
	for name, base := range filesystems {
		for seed := range uint64(12) {
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 1))
				size := uint64(1+rnd.IntN(2000)) * PageSize
				ram := newRAM(t, size)
				scribble(t, rnd, ram)
				touched := allocated(t, ram)

				opts := Options{Workers: 1 + rnd.IntN(4), Buffered: rnd.IntN(3) == 0}
				dir, m := saveIn(t, filepath.Join(base, fmt.Sprint(seed)), ram, opts)
				if got := allocated(t, ram); got != touched {
					t.Errorf("the save allocated guest RAM: %d bytes, before %d", got, touched)
				}
				want := content(t, ram)
				checkImage(t, dir, want, m)
				checkFill(t, dir, want)
			})
		}
	}
}

// checkImage compares an image with the RAM that was saved in it.
func checkImage(t *testing.T, dir string, want []byte, saved *Manifest) {
	t.Helper()
	img := open(t, dir)
	if !bytes.Equal(content(t, img.MemoryFile()), want) {
		t.Error("the memory file is not what guest RAM was")
	}
	if got := allocated(t, img.MemoryFile()); got > saved.DataBytes+8*PageSize { // the filesystem's own blocks count, too
		t.Errorf("the memory file takes %d bytes, %d were written", got, saved.DataBytes)
	}
	if got, least := saved.DataBytes, nonZeroPages(want); got < least {
		t.Errorf("DataBytes %d, but %d bytes of pages are not zero", got, least)
	}
	if m := img.Manifest(); m.DataBytes != saved.DataBytes || len(m.Chunks) != len(saved.Chunks) ||
		m.ID != saved.ID || m.Regions[0] != saved.Regions[0] || m.MemorySize != uint64(len(want)) {
		t.Errorf("read %+v, wrote %+v", m, saved)
	}
	if err := img.Verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if got := content(t, img.StateFile()); string(got) != testState {
		t.Errorf("state %q", got)
	}
}

// checkFill fills RAM from an image: the same content, and no page more than
// has to be.
func checkFill(t *testing.T, dir string, want []byte) {
	t.Helper()
	img := open(t, dir)
	ram := newRAM(t, uint64(len(want)))
	var last, total uint64
	err := img.Fill(t.Context(), ram, 0, func(d, n uint64) {
		if d < last || d > n {
			t.Errorf("progress %d of %d after %d", d, n, last)
		}
		last, total = d, n
	})
	if err != nil {
		t.Fatal(err)
	}
	if last != total {
		t.Errorf("the last progress was %d of %d", last, total)
	}
	if !bytes.Equal(content(t, ram), want) {
		t.Error("the filled RAM is not what was saved")
	}
	if got, least := allocated(t, ram), nonZeroPages(want); got != least {
		t.Errorf("the filled RAM takes %d bytes, %d are not zero", got, least)
	}
}

func TestFillRefuses(t *testing.T) {
	ram := newRAM(t, 64*PageSize)
	if _, err := ram.WriteAt([]byte("data"), 5*PageSize); err != nil {
		t.Fatal(err)
	}
	dir, _ := save(t, ram, Options{})
	img := open(t, dir)
	if err := img.Fill(t.Context(), ram, 0, nil); !errors.Is(err, os.ErrInvalid) {
		t.Errorf("into RAM with content: %v", err)
	}
	if err := img.Fill(t.Context(), newRAM(t, 63*PageSize), 0, nil); err == nil {
		t.Error("into RAM of another size: no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := img.Fill(ctx, newRAM(t, 64*PageSize), 0, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestDataBytes: as many are reckoned as are written.
func TestDataBytes(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "ram"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const size = 16 << 20
	content := make([]byte, size)
	for _, at := range []int{0, 5000, 3 << 20, size - 1} {
		content[at] = 1
	}
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	w, err := Create(filepath.Join(t.TempDir(), "image"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Abort() }()
	reckoned, err := DataBytes(t.Context(), f, size)
	if err != nil {
		t.Fatal(err)
	}
	stats, err := w.CopyMemory(t.Context(), f, size, nil)
	if err != nil {
		t.Fatal(err)
	}
	if reckoned != stats.DataBytes || reckoned == 0 {
		t.Errorf("%d bytes are reckoned, and %d written", reckoned, stats.DataBytes)
	}
}
