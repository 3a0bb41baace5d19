package memory

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
)

// Bounds on the size of a chunk in bytes, a power of two.
const (
	minChunkSize     = 64 << 10
	defaultChunkSize = 1 << 20
	maxChunkSize     = 16 << 20

	// maxChunks keeps the manifest of a large guest small: its chunks grow.
	maxChunks = 1 << 20
	// maxMemorySize follows from the two.
	maxMemorySize = maxChunks * maxChunkSize
	// maxStateSize leaves room for RAM inside the state.
	maxStateSize = 2 * maxMemorySize
)

// ChunkSum is the sum of one chunk of memory, zeros included.
type ChunkSum struct {
	Index uint32 // the chunk's offset divided by the chunk size
	Sum   Sum32
}

// ChunkSums is a list of sums. In JSON it is a string: the base64 (RFC 4648,
// standard alphabet, padded) of eight bytes for each chunk, its index and then
// its sum, both 32 bits, little-endian.
type ChunkSums []ChunkSum

const packedChunkSum = 8

// MarshalText implements encoding.TextMarshaler.
func (c ChunkSums) MarshalText() ([]byte, error) {
	b := make([]byte, 0, len(c)*packedChunkSum)
	for _, s := range c {
		b = binary.LittleEndian.AppendUint32(b, s.Index)
		b = binary.LittleEndian.AppendUint32(b, uint32(s.Sum))
	}
	return base64.StdEncoding.AppendEncode(nil, b), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *ChunkSums) UnmarshalText(text []byte) error {
	b, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil {
		return &FormatError{Field: "chunks", What: err.Error(), Err: err}
	}
	if len(b)%packedChunkSum != 0 {
		return &FormatError{Field: "chunks", What: fmt.Sprintf("%d bytes are not a multiple of %d", len(b), packedChunkSum)}
	}
	*c = make(ChunkSums, 0, len(b)/packedChunkSum)
	for ; len(b) > 0; b = b[packedChunkSum:] {
		*c = append(*c, ChunkSum{binary.LittleEndian.Uint32(b), Sum32(binary.LittleEndian.Uint32(b[4:]))})
	}
	return nil
}

// find looks a chunk up in an ascending list.
func (c ChunkSums) find(index uint32) (Sum32, bool) {
	i, found := slices.BinarySearchFunc(c, index, func(s ChunkSum, index uint32) int { return cmp.Compare(s.Index, index) })
	if !found {
		return 0, false
	}
	return c[i].Sum, true
}

// chunkSizeFor returns the chunk size for so many bytes of memory.
func chunkSizeFor(size uint64) uint64 {
	chunk := uint64(defaultChunkSize)
	for size > chunk*maxChunks && chunk < maxChunkSize {
		chunk *= 2
	}
	return chunk
}

// chunkCount returns how many chunks there are, the last perhaps short.
func chunkCount(size, chunk uint64) uint64 { return (size + chunk - 1) / chunk }

// chunkLen returns the length of a chunk in bytes.
func chunkLen(index uint32, size, chunk uint64) int {
	return int(min(chunk, size-uint64(index)*chunk))
}
