package importer

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
	"github.com/ulikunitz/xz/lzma"
)

// maxWindow bounds what a decompressor keeps of what it has written, in bytes. xz -9 has 64 MiB,
// zstd --long 128 MiB.
const maxWindow = 128 << 20

// Lengths of the headers that say how something is compressed.
const (
	xzStreamHeader = 12
	xzBlockHeader  = 64 // the most that is looked at
)

// decompress returns a reader of what is in a stream, by what it begins with; the stream itself if
// it is not compressed.
func decompress(from *bufio.Reader) (plain io.Reader, compressed bool, err error) {
	head, err := from.Peek(xzStreamHeader + xzBlockHeader)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, err
	}
	switch {
	case bytes.HasPrefix(head, []byte("\x1f\x8b\x08")):
		plain, err = gzip.NewReader(from)
	case bytes.HasPrefix(head, []byte("\xfd7zXZ\x00")):
		if err := boundXZ(head); err != nil {
			return nil, true, err
		}
		plain, err = xz.NewReader(from)
	case bytes.HasPrefix(head, []byte("BZh")) && bytes.HasPrefix(head[min(len(head), 4):], []byte("1AY&SY")):
		plain = bzip2.NewReader(from)
	case bytes.HasPrefix(head, []byte("\x28\xb5\x2f\xfd")):
		var d *zstd.Decoder
		d, err = zstd.NewReader(from, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
		if err == nil {
			plain = d.IOReadCloser()
		}
	default:
		return from, false, nil
	}
	if err != nil {
		return nil, true, fmt.Errorf("the file can't be decompressed: %w", err)
	}
	return plain, true, nil
}

// boundXZ refuses a file whose first block wants a larger dictionary. The library takes what the
// header says; later blocks that say more are bounded by the pod's memory.
func boundXZ(head []byte) error {
	if len(head) < xzStreamHeader+5 {
		return errors.New("the file can't be decompressed: it ends in its header")
	}
	block := head[xzStreamHeader:]
	if block[0] == 0 {
		return nil // an index: there are no blocks
	}
	// Size, flags, two optional sizes of variable length, then filters: id, length, properties.
	// LZMA2 is filter 0x21 with one byte; it is the last, and others are not supported.
	at := 2
	for _, there := range []bool{block[1]&0x40 != 0, block[1]&0x80 != 0} {
		for there && at < len(block) {
			at++
			there = block[at-1]&0x80 != 0
		}
	}
	if at+3 > len(block) || block[at] != 0x21 || block[at+1] != 1 {
		return errors.New("the file can't be decompressed: of xz only the filter LZMA2 is supported")
	}
	size, err := lzma.DecodeDictCap(block[at+2])
	if err != nil || size > maxWindow {
		return fmt.Errorf("the file can't be decompressed: its xz dictionary has %d bytes, and may have %d: compress it with xz -9 or less", size, int64(maxWindow))
	}
	return nil
}
