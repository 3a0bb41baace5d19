package disk

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"io"
	"math"
	"slices"
)

// The format is described in QEMU's docs/interop/qcow2 (.txt, later .rst); names of fields below are that document's. The limits
// that aren't the format's own are those of QEMU's qcow2 driver.
const (
	qcowMagic = "QFI\xfb"

	headerLengthV2 = 72
	headerLengthV3 = 104 // at least

	minClusterBits = 9
	maxClusterBits = 21       // QEMU's limit: 2 MiB clusters
	maxL1Bytes     = 32 << 20 // QEMU's limit
	maxSnapshots   = 65536    // QEMU's limit
	maxBackingName = 1023
	maxFormatName  = 15   // QEMU's limit
	maxDataName    = 4096 // PATH_MAX: no longer name can be opened

	incompatibleDirty        = 1 << 0
	incompatibleCorrupt      = 1 << 1
	incompatibleExternalData = 1 << 2
	incompatibleKnown        = 1<<5 - 1 // and compression type, extended L2 entries

	autoclearRawExternalData = 1 << 1

	extensionEnd           = 0x00000000
	extensionBackingFormat = 0xe2792aca
	extensionDataFile      = 0x44415441
)

// Header is what the header of a qcow2 image says.
type Header struct {
	// Version is 2 or 3.
	Version uint32
	// VirtualSize is the guest's disk size in bytes.
	VirtualSize int64
	// ClusterSize is in bytes.
	ClusterSize int
	// BackingFile is the name of the image that this one lies over, as written: a path, relative to this image's folder, or
	// something that QEMU takes for a protocol; empty without one. BackingFormat may be empty also with one.
	BackingFile, BackingFormat string
	// ExternalData is true if guest data is in another file. DataFile is its name, which may be empty also then.
	ExternalData bool
	DataFile     string
	// RawExternalData is true if that other file is by itself a raw image.
	RawExternalData bool
	// Encryption is "aes" or "luks", empty without.
	Encryption string
	// Dirty is true if reference counts may be wrong (not closed properly, with lazy_refcounts); QEMU repairs that by itself.
	Dirty bool
	// Corrupt is true if QEMU found the metadata damaged and forbade writing.
	Corrupt bool
	// UnknownFeatures has the incompatible_features that aren't known here; with any of them an image can't be opened.
	UnknownFeatures uint64
	// Snapshots is the number of internal snapshots.
	Snapshots uint32
	// Sum changes whenever the header, its extensions or the backing file's name do. It is no cryptographic hash.
	Sum string
}

// wholeHeader is the field of a fault that is of no single one.
const wholeHeader = "header"

// HeaderError says that a qcow2 header breaks the format's rules or QEMU's limits.
type HeaderError struct {
	// Field is the field's name in the format's description.
	Field string
	// Problem says what was found there and what is allowed.
	Problem string
}

func (e *HeaderError) Error() string {
	field := e.Field + ": "
	if e.Field == wholeHeader {
		field = ""
	}
	return fmt.Sprintf("qcow2 header: %s%s (the image is damaged or made up; try qemu-img check)", field, e.Problem)
}

func malformed(field, format string, args ...any) error {
	return &HeaderError{Field: field, Problem: fmt.Sprintf(format, args...)}
}

// headerReader reads the first cluster from its start, summing as it goes.
type headerReader struct {
	in     *bufio.Reader
	sum    hash.Hash
	offset int64
}

// take reads n bytes, which must be few; field is what the error names when the file ends before.
func (r *headerReader) take(n int, field string) ([]byte, error) {
	b := make([]byte, n)
	if _, err := io.ReadFull(r.in, b); err != nil {
		return nil, readError(err, field)
	}
	r.offset += int64(n)
	r.sum.Write(b)
	return b, nil
}

// skip passes over n bytes, summing them, in constant memory.
func (r *headerReader) skip(n int64, field string) error {
	if _, err := io.CopyN(r.sum, r.in, n); err != nil {
		return readError(err, field)
	}
	r.offset += n
	return nil
}

func readError(err error, field string) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return malformed(field, "the file ends before it does")
	}
	return fmt.Errorf("reading the qcow2 header: %w", err)
}

// readHeader parses the first cluster. It reads at most that (2 MiB) and holds a few KiB at most.
func readHeader(file io.Reader) (*Header, error) {
	r := &headerReader{in: bufio.NewReader(file), sum: fnv.New128a()}
	fixed, err := r.take(headerLengthV2, wholeHeader)
	if err != nil {
		return nil, err
	}
	h := &Header{}
	if err := h.parseFixed(fixed); err != nil {
		return nil, err
	}
	if h.Version >= 3 {
		if err := h.readV3(r); err != nil {
			return nil, err
		}
	}
	backing, err := parseBacking(fixed, r.offset, h.ClusterSize)
	if err != nil {
		return nil, err
	}
	if err := h.readExtensions(r, backing.extensionsEnd); err != nil {
		return nil, err
	}
	if err := h.readBackingName(r, backing); err != nil {
		return nil, err
	}
	h.Sum = "fnv128a:" + hex.EncodeToString(r.sum.Sum(nil))
	return h, nil
}

// parseFixed parses the 72 bytes that versions 2 and 3 have in common, but for the backing file's.
func (h *Header) parseFixed(b []byte) error {
	be := binary.BigEndian
	if string(b[:4]) != qcowMagic {
		return malformed("magic", "%q, not %q", b[:4], qcowMagic)
	}
	if h.Version = be.Uint32(b[4:]); h.Version != 2 && h.Version != 3 {
		return malformed("version", "%d, where 2 and 3 are known", h.Version)
	}
	bits := be.Uint32(b[20:])
	if bits < minClusterBits || bits > maxClusterBits {
		return malformed("cluster_bits", "%d, not between %d and %d", bits, minClusterBits, maxClusterBits)
	}
	h.ClusterSize = 1 << bits
	size := be.Uint64(b[24:])
	if size > math.MaxInt64 {
		return malformed("size", "%d bytes, more than can be", size)
	}
	h.VirtualSize = int64(size)
	switch crypt := be.Uint32(b[32:]); crypt {
	case 0:
	case 1:
		h.Encryption = "aes"
	case 2:
		h.Encryption = "luks"
	default:
		return malformed("crypt_method", "%d, where 0 (none), 1 (AES) and 2 (LUKS) are known", crypt)
	}
	if l1 := uint64(be.Uint32(b[36:])); l1*8 > maxL1Bytes {
		return malformed("l1_size", "%d entries, more than QEMU's limit of %d", l1, maxL1Bytes/8)
	}
	if h.Snapshots = be.Uint32(b[60:]); h.Snapshots > maxSnapshots {
		return malformed("nb_snapshots", "%d, more than QEMU's limit of %d", h.Snapshots, maxSnapshots)
	}
	return h.checkOffsets(b)
}

// checkOffsets checks the alignment of the tables that the header points at.
func (h *Header) checkOffsets(b []byte) error {
	for _, table := range []struct {
		field string
		at    int
	}{{"l1_table_offset", 40}, {"refcount_table_offset", 48}, {"snapshots_offset", 64}} {
		if offset := binary.BigEndian.Uint64(b[table.at:]); offset%uint64(h.ClusterSize) != 0 {
			return malformed(table.field, "%#x, not aligned to a cluster of %d bytes", offset, h.ClusterSize)
		}
	}
	return nil
}

// readV3 reads what version 3 adds, to the end of the header proper.
func (h *Header) readV3(r *headerReader) error {
	b, err := r.take(headerLengthV3-headerLengthV2, wholeHeader)
	if err != nil {
		return err
	}
	be := binary.BigEndian
	incompatible, autoclear := be.Uint64(b), be.Uint64(b[16:])
	h.Dirty = incompatible&incompatibleDirty != 0
	h.Corrupt = incompatible&incompatibleCorrupt != 0
	h.ExternalData = incompatible&incompatibleExternalData != 0
	h.UnknownFeatures = incompatible &^ incompatibleKnown
	h.RawExternalData = autoclear&autoclearRawExternalData != 0
	if order := be.Uint32(b[24:]); order > 6 {
		return malformed("refcount_order", "%d, more than 6", order)
	}
	length := be.Uint32(b[28:])
	if length < headerLengthV3 || length%8 != 0 || uint64(length) > uint64(h.ClusterSize) {
		return malformed("header_length", "%d, not a multiple of 8 between %d and the cluster size, %d", length, headerLengthV3, h.ClusterSize)
	}
	return r.skip(int64(length)-headerLengthV3, wholeHeader)
}

// backingName is where the backing file's name lies; length 0 if there is none.
type backingName struct {
	offset, extensionsEnd int64
	length                int
}

func parseBacking(fixed []byte, headerLength int64, clusterSize int) (backingName, error) {
	cluster := int64(clusterSize)
	offset, length := binary.BigEndian.Uint64(fixed[8:]), binary.BigEndian.Uint32(fixed[16:])
	if offset == 0 {
		return backingName{extensionsEnd: cluster}, nil
	}
	if offset < uint64(headerLength) || offset >= uint64(cluster) {
		return backingName{}, malformed("backing_file_offset", "%d, not between the header's end, %d, and the first cluster's, %d", offset, headerLength, cluster)
	}
	if length == 0 || length > maxBackingName || int64(offset)+int64(length) > cluster {
		return backingName{}, malformed("backing_file_size", "%d bytes at %d, not between 1 and %d or past the first cluster's end, %d",
			length, offset, maxBackingName, cluster)
	}
	return backingName{offset: int64(offset), extensionsEnd: int64(offset), length: int(length)}, nil
}

func (h *Header) readBackingName(r *headerReader, at backingName) error {
	if at.length == 0 {
		return nil
	}
	if err := r.skip(at.offset-r.offset, "backing_file_offset"); err != nil {
		return err
	}
	name, err := r.take(at.length, "backing_file_size")
	if err != nil {
		return err
	}
	h.BackingFile, err = cleanString("backing file name", name)
	return err
}

// readExtensions reads header extensions up to the end marker or the end of their area.
func (h *Header) readExtensions(r *headerReader, end int64) error {
	var seen []uint32
	for r.offset < end {
		if end-r.offset < 8 {
			return malformed("header extension", "at %d, where only %d bytes are left", r.offset, end-r.offset)
		}
		head, err := r.take(8, "header extension")
		if err != nil {
			return err
		}
		kind, length := binary.BigEndian.Uint32(head), int64(binary.BigEndian.Uint32(head[4:]))
		if kind == extensionEnd {
			return nil
		}
		if length > end-r.offset {
			return malformed("header extension", "%#x is %d bytes long, where only %d are left", kind, length, end-r.offset)
		}
		if kind == extensionBackingFormat || kind == extensionDataFile {
			if slices.Contains(seen, kind) {
				return malformed("header extension", "%#x is listed twice", kind)
			}
			seen = append(seen, kind)
		}
		if err := h.readExtension(r, kind, length); err != nil {
			return err
		}
		if err := r.skip(min((8-length%8)%8, end-r.offset), "header extension"); err != nil {
			return err
		}
	}
	return nil
}

func (h *Header) readExtension(r *headerReader, kind uint32, length int64) (err error) {
	switch kind {
	case extensionBackingFormat:
		h.BackingFormat, err = readString(r, "backing file format name", length, maxFormatName)
	case extensionDataFile:
		h.DataFile, err = readString(r, "external data file name", length, maxDataName)
	default:
		err = r.skip(length, "header extension")
	}
	return err
}

func readString(r *headerReader, field string, length, limit int64) (string, error) {
	if length > limit {
		return "", malformed(field, "%d bytes long, more than %d", length, limit)
	}
	b, err := r.take(int(length), field)
	if err != nil {
		return "", err
	}
	return cleanString(field, b)
}

// cleanString refuses a NUL, at which QEMU would end the name: it would open another file than the one compared.
func cleanString(field string, b []byte) (string, error) {
	if bytes.IndexByte(b, 0) >= 0 {
		return "", malformed(field, "%q has a NUL byte in it", b)
	}
	return string(b), nil
}
