package memory

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/internal/interrupted"
)

// dataRuns yields start and end of each run of pages in b that aren't zero.
// Runs with less than gap bytes of zeros between them are one. The length of b
// is a multiple of PageSize.
func dataRuns(b []byte, gap int) iter.Seq2[int, int] {
	return func(yield func(start, end int) bool) {
		start, end := -1, -1
		for p := 0; p < len(b); p += PageSize {
			if isZero(b[p : p+PageSize]) {
				continue
			}
			if start >= 0 && p-end >= max(gap, PageSize) {
				if !yield(start, end) {
					return
				}
				start = -1
			}
			if start < 0 {
				start = p
			}
			end = p + PageSize
		}
		if start >= 0 {
			yield(start, end)
		}
	}
}

// isZero compares b with itself, one byte on: vectorised, and over at the
// first difference.
func isZero(b []byte) bool {
	return len(b) == 0 || b[0] == 0 && bytes.Equal(b[1:], b[:len(b)-1])
}

// nextData returns the offset of the first data at or after off, or size if
// there is none. It moves f's offset. A filesystem that can't tell holes has
// only data.
func nextData(f *os.File, off, size uint64) (uint64, error) {
	if off >= size {
		return size, nil
	}
	at, err := f.Seek(int64(off), unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return size, nil
	case errors.Is(err, unix.EINVAL):
		return off, nil
	case err != nil:
		return 0, fmt.Errorf("find data from offset %d: %w", off, err)
	}
	return min(uint64(at), size), nil
}

// dataChunks yields the index of each chunk of f that has data, with the offset
// of the first data in it.
func dataChunks(f *os.File, size, chunk uint64) iter.Seq2[chunkData, error] {
	return func(yield func(chunkData, error) bool) {
		for off := uint64(0); ; {
			at, err := nextData(f, off, size)
			if err != nil {
				yield(chunkData{}, err)
				return
			}
			if at >= size || !yield(chunkData{index: uint32(at / chunk), first: at &^ (PageSize - 1)}, nil) {
				return
			}
			off = (at/chunk + 1) * chunk
		}
	}
}

type chunkData struct {
	index uint32
	first uint64 // offset in the file, a multiple of PageSize
}

// checkSize refuses a RAM file that isn't what the caller thinks it is.
func checkSize(ram *os.File, size uint64) error {
	st, err := ram.Stat()
	if err != nil {
		return fmt.Errorf("guest RAM: %w", err)
	}
	if !st.Mode().IsRegular() {
		return contract.Errorf("guest RAM %s: %v is not a regular file", contract.ObjectName(ram.Name()), st.Mode())
	}
	if uint64(st.Size()) != size {
		return contract.Errorf("guest RAM %s: %d bytes, expected %d", contract.ObjectName(ram.Name()), st.Size(), size)
	}
	return nil
}

// readFull reads all of b; the end of the file before it is an error.
func readFull(f io.ReaderAt, b []byte, off uint64) error {
	n, err := f.ReadAt(b, int64(off))
	if n == len(b) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("ends at offset %d, %d bytes were to follow: %w", off+uint64(n), len(b)-n, io.ErrUnexpectedEOF)
	}
	return err
}

// TouchedBytes returns how many bytes of RAM are allocated, which is the most
// that an image of it takes: pages that were touched and are zero count here
// but are not written. It does not look at the pages.
func TouchedBytes(ram *os.File) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(ram.Fd()), &st); err != nil {
		return 0, contract.Errorf("guest RAM %s: fstat: %w", contract.ObjectName(ram.Name()), err)
	}
	return min(uint64(st.Blocks)*512, uint64(st.Size)), nil // blocks of 512 bytes, see stat(3type)
}

// Empty gives all pages of guest RAM back to the kernel; they read as zeros afterwards. Processes that
// map it may go on: the size stays.
func Empty(ram *os.File) error {
	st, err := ram.Stat()
	if err != nil || st.Size() == 0 {
		return err
	}
	err = interrupted.Retry(func() error {
		return unix.Fallocate(int(ram.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, st.Size())
	})
	if err != nil {
		return contract.Errorf("empty guest RAM %s: %w", contract.ObjectName(ram.Name()), err)
	}
	return nil
}
