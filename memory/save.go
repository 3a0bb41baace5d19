package memory

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
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
// left out. It needs ram readable, moves its offset, allocates none of its
// holes, and reports an error if it is truncated meanwhile. The context is
// heeded between chunks. It may be called once.
func (w *Writer) CopyMemory(ctx context.Context, ram *os.File, size uint64, progress Progress) (SaveStats, error) {
	if w.over || w.memory != nil {
		return SaveStats{}, contract.Errorf("%s: memory was copied before: %w", contract.ObjectName(w.folder.path), os.ErrClosed)
	}
	if size == 0 || size%PageSize != 0 || size > maxMemorySize {
		return SaveStats{}, fmt.Errorf("guest RAM of %d bytes: not a multiple of %d up to %d", size, PageSize, uint64(maxMemorySize))
	}
	if err := checkSize(ram, size); err != nil {
		return SaveStats{}, err
	}
	if err := w.makeMemory(size); err != nil {
		return SaveStats{}, err
	}
	if err := context.Cause(ctx); err != nil { // making the file may have taken long
		return SaveStats{}, err
	}
	c := &copier{from: ram, to: *w.memory, size: size, chunk: chunkSizeFor(size)}
	items, total, err := c.list()
	if err != nil {
		return SaveStats{}, err
	}
	c.progress = newTracker(progress, total)
	if err := forEach(ctx, w.opts.Workers, int(c.chunk), items, c.copy); err != nil {
		return SaveStats{}, contract.Errorf("copy guest RAM to %s: %w", contract.ObjectName(w.memory.Name()), err)
	}
	slices.SortFunc(c.sums, func(a, b ChunkSum) int { return cmp.Compare(a.Index, b.Index) })
	w.chunk, w.chunks = c.chunk, c.sums
	w.saved = SaveStats{Size: size, DataBytes: c.written, Chunks: len(c.sums), Direct: w.memory.direct()}
	return w.saved, nil
}

func (w *Writer) makeMemory(size uint64) error {
	f, err := w.create(MemoryName)
	if err != nil {
		return err
	}
	w.memory, w.sealed = &directFile{f}, false
	if !w.opts.Buffered {
		w.memory.tryDirect()
	}
	if err := interrupted.Retry(func() error { return unix.Ftruncate(int(f.Fd()), int64(size)) }); err != nil {
		return &os.PathError{Op: "truncate", Path: f.Name(), Err: err}
	}
	return nil
}

// copier copies chunks, several at a time.
type copier struct {
	from        *os.File
	to          directFile
	size, chunk uint64
	progress    *tracker

	mu      sync.Mutex
	sums    ChunkSums
	written uint64
}

// list returns the chunks that may have data and their size altogether.
func (c *copier) list() (items []chunkData, total uint64, err error) {
	for item, err := range dataChunks(c.from, c.size, c.chunk) {
		if err != nil {
			return nil, 0, contract.Errorf("guest RAM %s: %w", contract.ObjectName(c.from.Name()), err)
		}
		items = append(items, item)
		total += uint64(chunkLen(item.index, c.size, c.chunk))
	}
	return items, total, nil
}

// read reads a chunk into the buffer, and returns the part that it fills.
func (c *copier) read(item chunkData, buf []byte) ([]byte, error) {
	buf = buf[:chunkLen(item.index, c.size, c.chunk)]
	hole := item.first - uint64(item.index)*c.chunk
	clear(buf[:hole])
	if err := readFull(c.from, buf[hole:], item.first); err != nil {
		return nil, contract.Errorf("guest RAM %s: %w", contract.ObjectName(c.from.Name()), err)
	}
	return buf, nil
}

// DataBytes returns how many bytes CopyMemory would write just now. It reads all of RAM that is allocated, at the speed of
// memory; the guest may run.
func DataBytes(ctx context.Context, ram *os.File, size uint64) (uint64, error) {
	c := &copier{from: ram, size: size, chunk: chunkSizeFor(size)}
	items, _, err := c.list()
	if err != nil {
		return 0, err
	}
	var total atomic.Uint64
	err = forEach(ctx, defaultWorkers(), int(c.chunk), items, func(item chunkData, buf []byte) error {
		buf, err := c.read(item, buf)
		for from, to := range dataRuns(buf, mergeGap) {
			total.Add(uint64(to - from))
		}
		return err
	})
	return total.Load(), err
}

func (c *copier) copy(item chunkData, buf []byte) error {
	start := uint64(item.index) * c.chunk
	buf, err := c.read(item, buf)
	if err != nil {
		return err
	}
	var written uint64
	for from, to := range dataRuns(buf, mergeGap) {
		if _, err := c.to.WriteAt(buf[from:to], int64(start)+int64(from)); err != nil {
			return err
		}
		written += uint64(to - from)
	}
	if written > 0 {
		c.add(ChunkSum{item.index, sumOf(buf)}, written)
	}
	c.progress.add(uint64(len(buf)))
	return nil
}

func (c *copier) add(sum ChunkSum, written uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sums = append(c.sums, sum)
	c.written += written
}
