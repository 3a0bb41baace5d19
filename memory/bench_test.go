package memory

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// guests are the RAM that the benchmarks copy: of size bytes, with runs of
// random data of run bytes, evenly spread, touched bytes in all.
var guests = []struct {
	name               string
	size, touched, run uint64
}{
	{"1GiB-100MiB-touched", 1 << 30, 100 << 20, 256 << 10},
	{"1GiB-100MiB-scattered-pages", 1 << 30, 100 << 20, PageSize},
	{"4GiB-random", 4 << 30, 4 << 30, 4 << 20},
}

func benchRAM(b *testing.B, size, touched, run uint64) *os.File {
	b.Helper()
	if err := CheckSpace(b.TempDir(), 2*touched); err != nil {
		b.Skip(err)
	}
	ram := newRAM(b, size)
	rnd := rand.NewChaCha8([32]byte{3})
	buf := make([]byte, run)
	stride := size / (touched / run) &^ (PageSize - 1)
	for n := uint64(0); n < touched/run; n++ {
		rnd.Read(buf)
		if _, err := ram.WriteAt(buf, int64(n*stride)); err != nil {
			b.Fatal(err)
		}
	}
	return ram
}

// BenchmarkSave includes making everything durable.
func BenchmarkSave(b *testing.B) {
	for _, g := range guests {
		b.Run(g.name, func(b *testing.B) {
			ram := benchRAM(b, g.size, g.touched, g.run)
			dir := filepath.Join(b.TempDir(), "image")
			b.SetBytes(int64(g.touched))
			for b.Loop() {
				saveIn(b, dir, ram, Options{})
				b.StopTimer()
				if err := Remove(dir); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

func BenchmarkFill(b *testing.B) {
	for _, g := range guests {
		b.Run(g.name, func(b *testing.B) {
			ram := benchRAM(b, g.size, g.touched, g.run)
			dir, _ := save(b, ram, Options{})
			ram.Close()
			img := open(b, dir)
			b.SetBytes(int64(g.touched))
			for b.Loop() {
				b.StopTimer()
				ram := newRAM(b, g.size)
				b.StartTimer()
				if err := img.Fill(b.Context(), ram, 0, nil); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				ram.Close()
				b.StartTimer()
			}
		})
	}
}
