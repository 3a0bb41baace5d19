package memory

import (
	"context"
	"os"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
)

// Fill copies the image's RAM into a fresh file: of MemorySize bytes, all zero,
// open for reading and writing, on tmpfs, hugetlbfs or a memfd. No more than the
// given number of bytes may be allocated: a file that something was written to is refused.
// Each chunk is checked before any of it is written. Pages that are zero stay as they are. The
// errors are DamagedErrors, ErrStreamLayout, or the system's; after one the
// file's content is undefined. The context is heeded between chunks.
func (img *Image) Fill(ctx context.Context, ram *os.File, allocated uint64, progress Progress) error {
	if img.memory == nil {
		return contract.Errorf("%s: %w", contract.ObjectName(img.folder.path), ErrStreamLayout)
	}
	size := img.manifest.MemorySize
	if err := checkSize(ram, size); err != nil {
		return err
	}
	// By allocation, as hugetlbfs calls even its holes data.
	if n, err := TouchedBytes(ram); err != nil {
		return err
	} else if n > allocated {
		return contract.Errorf("guest RAM %s: not a fresh file: %d bytes of it are allocated: %w", contract.ObjectName(ram.Name()), n, os.ErrInvalid)
	}
	dst, err := newRAMWriter(ram, size)
	if err != nil {
		return err
	}
	defer dst.close()
	s, err := img.newScan()
	if err != nil {
		return err
	}
	defer s.close()
	t := newTracker(progress, s.total)
	return s.run(ctx, func(off uint64, b []byte) error {
		for from, to := range dataRuns(b, 0) {
			if err := dst.write(b[from:to], off+uint64(from)); err != nil {
				return contract.Errorf("guest RAM %s: write at offset %d: %w", contract.ObjectName(ram.Name()), off+uint64(from), err)
			}
		}
		t.add(uint64(len(b)))
		return nil
	})
}

// ramWriter writes to a RAM file: by pwrite(2), or through a mapping if the
// file is on hugetlbfs.
type ramWriter struct {
	file    *os.File
	mapping []byte
}

func newRAMWriter(ram *os.File, size uint64) (*ramWriter, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(ram.Fd()), &fs); err != nil {
		return nil, contract.Errorf("guest RAM %s: fstatfs: %w", contract.ObjectName(ram.Name()), err)
	}
	w := &ramWriter{file: ram}
	if int64(fs.Type) != unix.HUGETLBFS_MAGIC {
		return w, nil
	}
	// This reserves all huge pages, so that there are enough or it fails here.
	b, err := unix.Mmap(int(ram.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, contract.Errorf("guest RAM %s: map %d bytes of huge pages of %d (are so many free?): %w", contract.ObjectName(ram.Name()), size, fs.Bsize, err)
	}
	w.mapping = b
	return w, nil
}

func (w *ramWriter) write(b []byte, off uint64) error {
	if w.mapping != nil {
		return copyGuarded(w.mapping[off:], b)
	}
	_, err := w.file.WriteAt(b, int64(off))
	return err
}

func (w *ramWriter) close() {
	if w.mapping != nil {
		freeBuffer(w.mapping)
	}
}
