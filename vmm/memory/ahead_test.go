package memory

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// punch gives a random stretch of RAM back, as a balloon does.
func punch(t *testing.T, rnd *rand.Rand, ram *os.File) {
	t.Helper()
	size := int64(fileSize(t, ram))
	at := rnd.Int64N(size/PageSize) * PageSize
	length := min(int64(1+rnd.IntN(600))*PageSize, size-at)
	if err := unix.Fallocate(int(ram.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, length); err != nil {
		t.Fatal(err)
	}
}

// aheadOf copies ram ahead, and does something before it is copied for good.
func aheadOf(t *testing.T, dir string, ram *os.File, opts Options, between func()) *Manifest {
	t.Helper()
	w, err := Create(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	size := fileSize(t, ram)
	if err := w.CopyAhead(t.Context(), ram, size, nil); err != nil {
		t.Fatal(err)
	}
	between()
	if _, err := w.CopyMemory(t.Context(), ram, size, nil); err != nil {
		t.Fatal(err)
	}
	writeState(t, w)
	m := manifestFor(size)
	if err := w.Commit(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestCopyAhead: what changes after a copy ahead, pages that become zero or holes and
// such that become data included, is in the image as it is in the end.
func TestCopyAhead(t *testing.T) {
	for seed := range uint64(16) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 2))
			ram := newRAM(t, uint64(1+rnd.IntN(2000))*PageSize)
			scribble(t, rnd, ram)
			dir := filepath.Join(t.TempDir(), "image")
			opts := Options{Workers: 1 + rnd.IntN(4), Buffered: rnd.IntN(3) == 0}
			m := aheadOf(t, dir, ram, opts, func() {
				punch(t, rnd, ram)
				scribble(t, rnd, ram)
				punch(t, rnd, ram)
			})
			want := content(t, ram)
			checkImage(t, dir, want, m)
			checkFill(t, dir, want)
		})
	}
}

// TestCopyAheadOfWriter: the guest writes all the time that is copied ahead.
func TestCopyAheadOfWriter(t *testing.T) {
	const size = 48 << 20
	ram := newRAM(t, size)
	fillRandom(t, ram, size)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		rnd := rand.New(rand.NewPCG(1, 1))
		b := make([]byte, 3*PageSize/2) // torn pages
		for {
			select {
			case <-stop:
				return
			default:
			}
			for i := range b {
				b[i] = byte(rnd.Uint32())
			}
			if _, err := ram.WriteAt(b, rnd.Int64N(size-int64(len(b)))); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	dir := filepath.Join(t.TempDir(), "image")
	m := aheadOf(t, dir, ram, Options{}, func() {
		close(stop)
		<-stopped
	})
	checkImage(t, dir, content(t, ram), m)
}

// TestCopyAheadWritesChanges: what has not changed is not written again, and one byte
// costs one block.
func TestCopyAheadWritesChanges(t *testing.T) {
	const size = 8 << 20
	ram := newRAM(t, size)
	fillRandom(t, ram, size)
	w, err := Create(filepath.Join(t.TempDir(), "image"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	if err := w.CopyAhead(t.Context(), ram, size, nil); err != nil {
		t.Fatal(err)
	}
	rewritten := func(want uint64) {
		t.Helper()
		got, err := w.copy.run(t.Context(), 2, nil)
		if err != nil || got != want {
			t.Errorf("%d bytes written again, expected %d (%v)", got, want, err)
		}
	}
	rewritten(0)
	for _, at := range []int64{0, blockSize - 1, 5<<20 + blockSize, size - 1} {
		if _, err := ram.WriteAt([]byte{1}, at); err != nil {
			t.Fatal(err)
		}
		before := content(t, ram)[at]
		if _, err := ram.WriteAt([]byte{before + 1}, at); err != nil {
			t.Fatal(err)
		}
	}
	rewritten(3 * blockSize) // the first two are in one
	rewritten(0)
}

// TestCopyAheadFollows: CopyMemory takes the same size, once, and nothing is copied
// ahead afterwards.
func TestCopyAheadFollows(t *testing.T) {
	ram, other := newRAM(t, 4*PageSize), newRAM(t, 8*PageSize)
	w, err := Create(filepath.Join(t.TempDir(), "image"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	if err := w.CopyAhead(t.Context(), ram, 4*PageSize, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := w.CopyMemory(t.Context(), other, 8*PageSize, nil); err == nil {
		t.Error("memory of another size was copied")
	}
	if _, err := w.CopyMemory(t.Context(), ram, 4*PageSize, nil); err != nil {
		t.Error(err)
	}
	if _, err := w.CopyMemory(t.Context(), ram, 4*PageSize, nil); err == nil {
		t.Error("memory was copied twice")
	}
	if err := w.CopyAhead(t.Context(), ram, 4*PageSize, nil); err == nil {
		t.Error("memory was copied ahead of nothing")
	}
}

// BenchmarkAfterAhead is what is left to do while the guest stands still, if it has
// changed nothing.
func BenchmarkAfterAhead(b *testing.B) {
	ram := benchRAM(b, 1<<30, 1<<30, 4<<20)
	w, err := Create(filepath.Join(b.TempDir(), "image"), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Abort()
	if err := w.CopyAhead(b.Context(), ram, 1<<30, nil); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(1 << 30)
	for b.Loop() {
		if _, err := w.copy.run(b.Context(), w.opts.Workers, nil); err != nil {
			b.Fatal(err)
		}
	}
}
