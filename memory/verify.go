package memory

import (
	"context"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/vmlet/vmlet/contract"
)

// Verify reads the whole image and compares it with its sums. The errors are
// DamagedErrors, for the first damage that was found, or the system's. It takes
// a few MiB of memory, whatever the size of the image, and reads past the page
// cache where it can.
func (img *Image) Verify(ctx context.Context, progress Progress) error {
	s, err := img.newScan()
	if err != nil {
		return err
	}
	defer s.close()
	total := s.total + img.manifest.StateSize
	for _, f := range img.manifest.Files {
		total += f.DataBytes
	}
	t := newTracker(progress, total)
	err = s.run(ctx, func(_ uint64, b []byte) error {
		t.add(uint64(len(b)))
		return nil
	})
	if err != nil {
		return err
	}
	if err := img.verifyFiles(ctx, t.add); err != nil {
		return err
	}
	return img.verifyState(ctx, t.add)
}

// VerifyState reads the state file and compares it with its sum.
func (img *Image) VerifyState(ctx context.Context) error {
	return img.verifyState(ctx, func(uint64) {})
}

func (img *Image) verifyState(ctx context.Context, done func(uint64)) error {
	sum, err := sumFile(ctx, img.state, img.manifest.StateSize, done)
	if err != nil {
		return err
	}
	if want := img.manifest.StateSum; sum != want {
		return damagedFile(img.state.Name(), "the sum of its %d bytes is %v, %s says %v", img.manifest.StateSize, sum, ManifestName, want)
	}
	return nil
}

// sumFile sums the first size bytes of f, which must be there.
func sumFile(ctx context.Context, f *os.File, size uint64, done func(uint64)) (Sum32, error) {
	buf, err := newBuffer(defaultChunkSize)
	if err != nil {
		return 0, err
	}
	defer freeBuffer(buf)
	var sum Sum32
	for off := uint64(0); off < size; {
		if err := context.Cause(ctx); err != nil {
			return 0, err
		}
		b := buf[:min(uint64(len(buf)), size-off)]
		if err := readFull(f, b, off); err != nil {
			return 0, contract.Errorf("%s: %w", contract.ObjectName(f.Name()), err)
		}
		sum = sum.add(b)
		off += uint64(len(b))
		done(uint64(len(b)))
	}
	return sum, nil
}

// scan reads all chunks of an image's memory that have, or should have, data.
type scan struct {
	img   *Image
	file  directFile
	items []scanItem
	total uint64 // bytes of all items
}

// scanItem is one chunk; one that has no sum must be zero.
type scanItem struct {
	index  uint32
	hasSum bool
	sum    Sum32
}

// newScan lists the chunks of the manifest, and the others that aren't holes.
func (img *Image) newScan() (*scan, error) {
	s := &scan{img: img}
	if img.memory == nil {
		return s, nil
	}
	f, err := openDirect(img.folder, MemoryName, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	s.file = f
	m := img.manifest
	for _, c := range m.Chunks {
		s.items = append(s.items, scanItem{c.Index, true, c.Sum})
	}
	for data, err := range dataChunks(f.File, m.MemorySize, m.ChunkSize) {
		if err != nil {
			s.close()
			return nil, contract.Errorf("%s: %w", contract.ObjectName(f.Name()), err)
		}
		if _, listed := m.Chunks.find(data.index); !listed {
			s.items = append(s.items, scanItem{index: data.index})
		}
	}
	slices.SortFunc(s.items, func(a, b scanItem) int { return int(a.index) - int(b.index) })
	for _, item := range s.items {
		s.total += uint64(chunkLen(item.index, m.MemorySize, m.ChunkSize))
	}
	return s, nil
}

func (s *scan) close() {
	if s.file.File != nil {
		s.file.Close()
	}
}

// run calls do for each chunk, from several goroutines, with its offset and its
// content, which is right.
func (s *scan) run(ctx context.Context, do func(off uint64, b []byte) error) error {
	m := s.img.manifest
	return forEach(ctx, defaultWorkers(), int(m.ChunkSize), s.items, func(item scanItem, buf []byte) error {
		off := uint64(item.index) * m.ChunkSize
		buf = buf[:chunkLen(item.index, m.MemorySize, m.ChunkSize)]
		if err := readFull(s.file, buf, off); err != nil {
			return &DamagedError{s.file.Name(), int64(off), int64(item.index), err.Error(), err}
		}
		if err := item.check(buf); err != "" {
			return &DamagedError{s.file.Name(), int64(off), int64(item.index), err, nil}
		}
		return do(off, buf)
	})
}

// check returns what is wrong with the chunk's content.
func (item scanItem) check(b []byte) string {
	if !item.hasSum {
		if isZero(b) {
			return ""
		}
		return fmt.Sprintf("it has data, %s says that it is all zeros", ManifestName)
	}
	if sum := sumOf(b); sum != item.sum {
		return fmt.Sprintf("the sum of its %d bytes is %v, %s says %v", len(b), sum, ManifestName, item.sum)
	}
	return ""
}
