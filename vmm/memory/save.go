package memory

import (
	"context"
	"fmt"
	"hash/maphash"
	"os"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/internal/interrupted"
)

// mergeGap is how many bytes of zeros between two runs of data are written
// rather than left a hole: a write of its own costs as much as so many bytes.
const mergeGap = 64 << 10

// SaveStats says what CopyMemory did, in bytes.
type SaveStats struct {
	Size      uint64 // of guest RAM
	DataBytes uint64 // written
	Chunks    int    // with data
	Direct    bool   // by direct I/O to the end
}

// CopyMemory copies guest RAM, a file of size bytes that nobody writes
// meanwhile, to the image's memory file: the same layout, zero pages and holes
// left out. What CopyAhead has copied, and has not changed since, is not written
// again. It needs ram readable, moves its offset, allocates none of its holes, and
// reports an error if it is truncated meanwhile. The context is heeded between
// chunks. It may be called once.
func (w *Writer) CopyMemory(ctx context.Context, ram *os.File, size uint64, progress Progress) (SaveStats, error) {
	c, err := w.begin(ram, size)
	if err != nil {
		return SaveStats{}, err
	}
	w.copied, c.ahead = true, false
	if _, err := c.run(ctx, w.opts.Workers, progress); err != nil {
		return SaveStats{}, err
	}
	w.chunk, w.chunks = c.chunk, c.sums()
	w.saved = SaveStats{Size: size, DataBytes: c.data(), Chunks: len(w.chunks), Direct: w.memory.direct()}
	return w.saved, nil
}

// begin makes the memory file, unless CopyAhead has.
func (w *Writer) begin(ram *os.File, size uint64) (*copier, error) {
	if w.over || w.copied || w.copy == nil && w.memory != nil {
		return nil, fmt.Errorf("%s: memory was copied before: %w", w.folder.path, os.ErrClosed)
	}
	if size == 0 || size%PageSize != 0 || size > maxMemorySize {
		return nil, fmt.Errorf("guest RAM of %d bytes: not a multiple of %d up to %d", size, PageSize, uint64(maxMemorySize))
	}
	if err := checkSize(ram, size); err != nil {
		return nil, err
	}
	if w.copy != nil && w.copy.size != size {
		return nil, fmt.Errorf("guest RAM of %d bytes: %d of it were copied ahead: %w", size, w.copy.size, os.ErrInvalid)
	}
	if w.copy == nil {
		if err := w.makeMemory(size); err != nil {
			return nil, err
		}
		w.copy = &copier{to: *w.memory, size: size, chunk: chunkSizeFor(size), seed: maphash.MakeSeed(), parts: make(map[uint32]part)}
	}
	w.copy.from = ram
	return w.copy, nil
}

func (w *Writer) makeMemory(size uint64) error {
	f, err := w.create(MemoryName)
	if err != nil {
		return err
	}
	w.memory = &directFile{f}
	if !w.opts.Buffered {
		w.memory.tryDirect()
	}
	if err := interrupted.Retry(func() error { return unix.Ftruncate(int(f.Fd()), int64(size)) }); err != nil {
		return &os.PathError{Op: "truncate", Path: f.Name(), Err: err}
	}
	return nil
}
