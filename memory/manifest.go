package memory

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"time"
)

// Names of an image's files.
const (
	ManifestName = "manifest.json"
	MemoryName   = "memory"
	StateName    = "state"

	manifestTemp = ManifestName + ".tmp"
)

// FormatVersion is the version of the image format that this package writes,
// and the newest that it reads. It rises only with a change that would mislead
// an older reader: new fields that may be ignored need no new version.
const FormatVersion = 1

// PageSize is the granularity of an image in bytes, whatever the page size of
// the machine: sizes and offsets are multiples of it.
const PageSize = 4096

// Layout says where an image has its RAM.
type Layout string

const (
	LayoutRaw    Layout = "raw"    // in the file memory
	LayoutStream Layout = "stream" // inside the file state, as the VMM streamed it
)

// SumCRC32C names the sum of chunks and state: CRC-32 with Castagnoli's
// polynomial (RFC 3720, appendix B.4), which CPUs have an instruction for.
const SumCRC32C = "crc32c"

// Manifest is the content of manifest.json. Sizes and offsets are in bytes.
//
// Commit sets FormatVersion, Sum, Chunks, ChunkSize, MemorySize, DataBytes,
// StateSize, StateSum and Files, and ID and CreatedAt where they are unset; the rest
// is the caller's. Strings and raw JSON are opaque to this package.
type Manifest struct {
	FormatVersion int       `json:"formatVersion"`
	ID            string    `json:"id"`
	CreatedAt     time.Time `json:"createdAt"`
	Layout        Layout    `json:"layout"`

	VMM         VMM    `json:"vmm"`
	Accelerator string `json:"accelerator,omitempty"`
	MachineType string `json:"machineType,omitempty"`
	CPU         CPU    `json:"cpu"`

	MemorySize uint64   `json:"memorySize"`
	Regions    []Region `json:"regions"`

	// DataBytes is how much of memory was written, not counting holes.
	DataBytes uint64 `json:"dataBytes"`
	Sum       string `json:"sum"`
	ChunkSize uint64 `json:"chunkSize"`
	// Chunks has the sum of each chunk with data, in ascending order. A chunk
	// that is not listed is all zeros.
	Chunks ChunkSums `json:"chunks"`

	StateSize uint64 `json:"stateSize"`
	StateSum  Sum32  `json:"stateSum"`

	Disks []DiskIdentity `json:"disks,omitempty"`
	// Files are disks that are in the image. Their identities in Disks are of no more use.
	Files []File `json:"files,omitempty"`

	// Specification and PlanExtras are carried as they are: they must be valid
	// JSON, and keep their meaning but not their white space.
	Specification json.RawMessage `json:"specification,omitempty"`
	PlanExtras    json.RawMessage `json:"planExtras,omitempty"`
}

// VMM names the program whose device state an image has.
type VMM struct {
	Name    string            `json:"name"`
	Version string            `json:"version"`
	Extra   map[string]string `json:"extra,omitempty"`
}

// CPU is the virtual CPU that the guest saw.
type CPU struct {
	Model    string   `json:"model,omitempty"`
	Features []string `json:"features,omitempty"`
}

// Region is one stretch of guest RAM in the memory file.
type Region struct {
	Name   string `json:"name"`
	Size   uint64 `json:"size"`
	Offset uint64 `json:"offset"`
}

// DiskIdentity tells whether a disk is still as it was at the save. Package disk
// says what the fields mean, and compares them.
type DiskIdentity struct {
	Name    string `json:"name"`
	Path    string `json:"path"`
	Format  string `json:"format"`
	Kind    string `json:"kind,omitempty"` // "file" or "block"; empty in images without the fields that follow headerSum
	Device  uint64 `json:"device"`         // st_dev; of a block device st_rdev
	Inode   uint64 `json:"inode"`          // st_ino
	Size    uint64 `json:"size"`           // bytes
	ModTime int64  `json:"modTime"`        // nanoseconds since 1970
	// HeaderSum is the sum of a qcow2 file's header; empty for a raw disk.
	HeaderSum      string `json:"headerSum,omitempty"`
	Born           int64  `json:"born,omitempty"` // nanoseconds since 1970
	FilesystemUUID string `json:"filesystemUuid,omitempty"`
	FilesystemID   string `json:"filesystemId,omitempty"`
	SampleSum      string `json:"sampleSum,omitempty"`
	// Backing are the files that the image lies over, nearest first.
	Backing []DiskIdentity `json:"backing,omitempty"`
}

// Sum32 is a CRC-32C; in JSON eight hexadecimal digits.
type Sum32 uint32

// MarshalText implements encoding.TextMarshaler.
func (s Sum32) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%08x", uint32(s)), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Sum32) UnmarshalText(text []byte) error {
	var raw [4]byte
	if len(text) != 2*len(raw) {
		return &FormatError{Field: "stateSum", What: fmt.Sprintf("%.80q is not 8 hexadecimal digits", text)}
	}
	if _, err := hex.Decode(raw[:], text); err != nil {
		return &FormatError{Field: "stateSum", What: err.Error(), Err: err}
	}
	*s = Sum32(binary.BigEndian.Uint32(raw[:]))
	return nil
}

func (s Sum32) String() string { return fmt.Sprintf("%08x", uint32(s)) }

func sumOf(b []byte) Sum32 { return Sum32(crc32.Checksum(b, castagnoli())) }

// add returns the sum of what s is the sum of, and b after it.
func (s Sum32) add(b []byte) Sum32 { return Sum32(crc32.Update(uint32(s), castagnoli(), b)) }

// castagnoli returns the standard library's shared table.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// encode returns the content of manifest.json: the manifest as JSON whose last
// member, manifestSum, is the sum of all bytes before it.
func (m *Manifest) encode() ([]byte, error) {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ManifestName, err)
	}
	b = b[:len(b)-len("\n}")]
	b = append(b, sumTrailer(sumOf(b))...)
	return b, nil
}

// Head returns the content of a manifest.json that has all of this but the sums of chunks,
// 11 MiB for 1 TiB of memory: for readers that only want to know what the image is of, by ReadManifest.
func (m *Manifest) Head() ([]byte, error) {
	head := *m
	head.Chunks, head.DataBytes = nil, 0 // an empty list is of no data
	b, err := json.Marshal(&head)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ManifestName, err)
	}
	b = bytes.TrimSuffix(b, []byte("}"))
	return append(b, sumTrailer(sumOf(b))...), nil
}

func sumTrailer(s Sum32) string { return fmt.Sprintf(",\n  \"manifestSum\": \"%v\"\n}\n", s) }

// NewID returns an id for an image: a random UUID (version 4, RFC 9562).
func NewID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails, by its documentation
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
