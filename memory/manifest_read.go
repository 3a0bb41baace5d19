package memory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/vmlet/vmlet/contract"
)

// maxManifestSize is the largest manifest.json in bytes: the sums of maxChunks
// take 11 MiB of it.
const maxManifestSize = 32 << 20

// maxElements bounds the fields and list elements of a manifest: each takes
// more memory than text. They are counted by their commas: base64 has none.
const maxElements = 1 << 18

// ReadManifest reads and checks the content of manifest.json. Path is for
// errors, which are FormatErrors, DamagedErrors or r's own. It reads no more
// than 32 MiB.
func ReadManifest(r io.Reader, path string) (*Manifest, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxManifestSize+1))
	if err != nil {
		return nil, contract.Errorf("%s: %w", contract.ObjectName(path), err)
	}
	if len(b) > maxManifestSize {
		return nil, &FormatError{Path: path, What: fmt.Sprintf("larger than %d bytes", maxManifestSize)}
	}
	if n := bytes.Count(b, []byte(",")); n > maxElements {
		return nil, &FormatError{Path: path, What: fmt.Sprintf("%d commas: it can't have more than %d fields and elements", n, maxElements)}
	}
	// The version comes first: a newer format may not decode at all.
	var v struct {
		FormatVersion int `json:"formatVersion"`
	}
	if err := decodeJSON(b, &v, path); err != nil {
		return nil, err
	}
	if err := checkVersion(v.FormatVersion, path); err != nil {
		return nil, err
	}
	m := new(Manifest)
	if err := decodeJSON(b, m, path); err != nil {
		return nil, err
	}
	if err := m.validate(path); err != nil {
		return nil, err
	}
	return m, checkManifestSum(b, path)
}

func checkVersion(v int, path string) error {
	switch {
	case v > FormatVersion:
		return &FormatError{path, "formatVersion",
			fmt.Sprintf("image format %d is newer than %d, the newest known here: restore it with a newer release", v, FormatVersion), ErrNewerFormat}
	case v < 1:
		return &FormatError{Path: path, Field: "formatVersion", What: fmt.Sprintf("%d is no format version", v)}
	}
	return nil
}

func decodeJSON(b []byte, into any, path string) error {
	err := json.Unmarshal(b, into)
	if err == nil {
		return nil
	}
	var typ *json.UnmarshalTypeError
	if errors.As(err, &typ) {
		return &FormatError{path, typ.Field, fmt.Sprintf("%s is not a valid %s", typ.Value, typ.Type), err}
	}
	var format *FormatError // of a field that decodes itself
	if errors.As(err, &format) {
		format.Path = path
		return format
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return &DamagedError{path, syntax.Offset, -1, "not JSON: " + err.Error(), err}
	}
	var date *time.ParseError
	if errors.As(err, &date) {
		return &FormatError{path, "createdAt", err.Error(), err}
	}
	return &FormatError{Path: path, What: err.Error(), Err: err}
}

// checkManifestSum finds what the fields' own checks can't: a flipped bit in
// the specification, say.
func checkManifestSum(b []byte, path string) error {
	n := len(b) - len(sumTrailer(0))
	if n < 0 {
		return damagedFile(path, "its end, the member manifestSum, is missing")
	}
	if want := sumTrailer(sumOf(b[:n])); !bytes.Equal(b[n:], []byte(want)) {
		return damagedFile(path, "manifestSum is missing or does not match the content (%v): changed since the save", sumOf(b[:n]))
	}
	return nil
}

// validate returns the first fault as a FormatError.
func (m *Manifest) validate(path string) error {
	fault := func(field, format string, args ...any) error {
		return &FormatError{Path: path, Field: field, What: fmt.Sprintf(format, args...)}
	}
	switch {
	case !validID(m.ID):
		return fault("id", "%.80q is not an id: letters, digits and dashes, at most 64", m.ID)
	case m.VMM.Name == "":
		return fault("vmm.name", "missing")
	case m.Sum != SumCRC32C:
		return fault("sum", "%.80q is unknown: %s is known", m.Sum, SumCRC32C)
	case m.MemorySize == 0 || m.MemorySize%PageSize != 0 || m.MemorySize > maxMemorySize:
		return fault("memorySize", "%d is not a multiple of %d from %[2]d to %d", m.MemorySize, PageSize, uint64(maxMemorySize))
	case m.StateSize > maxStateSize:
		return fault("stateSize", "%d is more than %d", m.StateSize, uint64(maxStateSize))
	}
	if err := m.validateRegions(fault); err != nil {
		return err
	}
	if err := m.validateDisks(fault); err != nil {
		return err
	}
	if err := m.validateFiles(fault); err != nil {
		return err
	}
	switch m.Layout {
	case LayoutRaw:
		return m.validateChunks(fault)
	case LayoutStream:
		if len(m.Chunks) > 0 {
			return fault("chunks", "%d sums, but the layout %s has no memory file", len(m.Chunks), LayoutStream)
		}
		return nil
	}
	return fault("layout", "%.80q is unknown: %s and %s are known", m.Layout, LayoutRaw, LayoutStream)
}

type faultFunc func(field, format string, args ...any) error

func (m *Manifest) validateRegions(fault faultFunc) error {
	if len(m.Regions) == 0 {
		return fault("regions", "missing")
	}
	names := make(map[string]bool, len(m.Regions))
	for i, r := range m.Regions {
		field := fmt.Sprintf("regions[%d].", i)
		switch {
		case r.Name == "" || names[r.Name]:
			return fault(field+"name", "%.80q is empty or not the only one", r.Name)
		case r.Size == 0 || r.Size%PageSize != 0 || r.Size > m.MemorySize:
			return fault(field+"size", "%d is not a multiple of %d up to memorySize, %d", r.Size, PageSize, m.MemorySize)
		case r.Offset%PageSize != 0 || r.Offset > m.MemorySize-r.Size:
			return fault(field+"offset", "%d is not a multiple of %d that leaves room for %d bytes below memorySize, %d", r.Offset, PageSize, r.Size, m.MemorySize)
		}
		names[r.Name] = true
	}
	byOffset := slices.SortedFunc(slices.Values(m.Regions), func(a, b Region) int {
		if a.Offset < b.Offset {
			return -1
		}
		return 1
	})
	for i := 1; i < len(byOffset); i++ {
		if a, b := byOffset[i-1], byOffset[i]; b.Offset < a.Offset+a.Size {
			return fault("regions", "%.80q and %.80q overlap at offset %d", a.Name, b.Name, b.Offset)
		}
	}
	return nil
}

func (m *Manifest) validateChunks(fault faultFunc) error {
	c := m.ChunkSize
	if c < minChunkSize || c > maxChunkSize || c&(c-1) != 0 {
		return fault("chunkSize", "%d is not a power of two from %d to %d", c, minChunkSize, maxChunkSize)
	}
	count := chunkCount(m.MemorySize, c)
	var data uint64
	for i, s := range m.Chunks {
		switch {
		case uint64(s.Index) >= count:
			return fault("chunks", "chunk %d is beyond memorySize: there are %d of %d bytes", s.Index, count, c)
		case i > 0 && s.Index <= m.Chunks[i-1].Index:
			return fault("chunks", "chunk %d is listed twice or after chunk %d", s.Index, m.Chunks[i-1].Index)
		}
		data += uint64(chunkLen(s.Index, m.MemorySize, c))
	}
	if m.DataBytes > data || m.DataBytes%PageSize != 0 {
		return fault("dataBytes", "%d is not a multiple of %d up to the %d bytes of the listed chunks", m.DataBytes, PageSize, data)
	}
	return nil
}

func (m *Manifest) validateDisks(fault faultFunc) error {
	names := make(map[string]bool, len(m.Disks))
	for i, d := range m.Disks {
		if d.Name == "" || names[d.Name] {
			return fault(fmt.Sprintf("disks[%d].name", i), "%.80q is empty or not the only one", d.Name)
		}
		names[d.Name] = true
	}
	return nil
}

func validID(id string) bool {
	for _, c := range []byte(id) {
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-') {
			return false
		}
	}
	return id != "" && len(id) <= 64
}
