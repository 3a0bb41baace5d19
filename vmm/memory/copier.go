package memory

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"os"
	"slices"
	"sync"
)

// blockSize is how much of memory, in bytes, is compared and written again as one
// when it was copied ahead: a write costs as much as so many bytes, see mergeGap.
const blockSize = mergeGap

// copier copies chunks, several at a time, once or again and again.
type copier struct {
	from        *os.File
	to          directFile
	size, chunk uint64
	ahead       bool // another copy is to follow
	seed        maphash.Seed

	mu    sync.Mutex
	parts map[uint32]part // those that have data in the image, by index
}

// part is a chunk as it is in the image by now.
type part struct {
	sum  Sum32
	data uint64 // bytes of it that aren't holes, at most
	// blocks are the hashes of its blocks, for the next copy. They are 64 bits, by a
	// seed that nobody outside knows: that a changed block has the same is one chance
	// in 2^64.
	blocks []uint64
}

// run copies all that may have changed, and returns how many bytes it has written.
func (c *copier) run(ctx context.Context, workers int, progress Progress) (written uint64, err error) {
	items, total, err := c.list()
	if err != nil {
		return 0, err
	}
	t := newTracker(progress, total)
	err = forEach(ctx, workers, int(c.chunk), items, func(item chunkData, buf []byte) error {
		buf = buf[:chunkLen(item.index, c.size, c.chunk)]
		n, err := c.copy(item, buf)
		if err != nil {
			return err
		}
		c.mu.Lock()
		written += n
		c.mu.Unlock()
		t.add(uint64(len(buf)))
		return nil
	})
	if err != nil {
		return written, fmt.Errorf("copy guest RAM to %s: %w", c.to.Name(), err)
	}
	return written, nil
}

// list returns the chunks that may have data, here or in the image, and their size
// altogether.
func (c *copier) list() (items []chunkData, total uint64, err error) {
	listed := make(map[uint32]bool)
	for item, err := range dataChunks(c.from, c.size, c.chunk) {
		if err != nil {
			return nil, 0, fmt.Errorf("guest RAM %s: %w", c.from.Name(), err)
		}
		items = append(items, item)
		listed[item.index] = true
	}
	for index := range c.parts {
		if !listed[index] { // the guest has given it back
			items = append(items, chunkData{index, uint64(index) * c.chunk})
		}
	}
	for _, item := range items {
		total += uint64(chunkLen(item.index, c.size, c.chunk))
	}
	return items, total, nil
}

// copy reads a chunk and writes what the image does not have of it.
func (c *copier) copy(item chunkData, buf []byte) (written uint64, err error) {
	start := uint64(item.index) * c.chunk
	hole := item.first - start
	clear(buf[:hole])
	if err := readFull(c.from, buf[hole:], item.first); err != nil {
		return 0, fmt.Errorf("guest RAM %s: %w", c.from.Name(), err)
	}
	c.mu.Lock()
	before, again := c.parts[item.index]
	c.mu.Unlock()
	runs := dataRuns(buf, mergeGap)
	var blocks []uint64
	if again || c.ahead {
		blocks = c.hash(buf)
	}
	if again {
		runs = changedRuns(before.blocks, blocks, len(buf))
	}
	for from, to := range runs {
		if _, err := c.to.WriteAt(buf[from:to], int64(start)+int64(from)); err != nil {
			return written, err
		}
		written += uint64(to - from)
	}
	if written == 0 {
		return 0, nil
	}
	// What is written over counts twice, up to the whole chunk: that is simpler, and
	// no less than the file takes.
	c.keep(item.index, part{sum: sumOf(buf), data: min(before.data+written, uint64(len(buf))), blocks: blocks})
	return written, nil
}

func (c *copier) keep(index uint32, p part) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parts[index] = p
}

func (c *copier) hash(buf []byte) []uint64 {
	hashes := make([]uint64, 0, (len(buf)+blockSize-1)/blockSize)
	for block := range slices.Chunk(buf, blockSize) {
		hashes = append(hashes, maphash.Bytes(c.seed, block))
	}
	return hashes
}

// changedRuns yields start and end of each run of blocks whose hash is another, in a
// chunk of size bytes.
func changedRuns(before, now []uint64, size int) func(yield func(start, end int) bool) {
	return func(yield func(start, end int) bool) {
		for n := 0; n < len(now); n++ {
			first := n
			for n < len(now) && now[n] != before[n] {
				n++
			}
			if n > first && !yield(first*blockSize, min(n*blockSize, size)) {
				return
			}
		}
	}
}

// sums are those of all chunks that have data in the image, by index.
func (c *copier) sums() ChunkSums {
	sums := make(ChunkSums, 0, len(c.parts))
	for index, p := range c.parts {
		sums = append(sums, ChunkSum{index, p.sum})
	}
	slices.SortFunc(sums, func(a, b ChunkSum) int { return cmp.Compare(a.Index, b.Index) })
	return sums
}

func (c *copier) data() (n uint64) {
	for _, p := range c.parts {
		n += p.data
	}
	return n
}
