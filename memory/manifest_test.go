package memory

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// fullManifest has all fields set, and is valid.
func fullManifest() *Manifest {
	m := manifestFor(3<<20 + PageSize)
	m.FormatVersion, m.ID, m.CreatedAt, m.Layout = FormatVersion, NewID(), time.Now().UTC(), LayoutRaw
	m.VMM.Extra = map[string]string{"features": "x-ignore-shared"}
	m.Regions = []Region{{"high", 2 << 20, 1<<20 + PageSize}, {"low", 1 << 20, 0}}
	m.Sum, m.ChunkSize = SumCRC32C, 1<<20
	m.Chunks = ChunkSums{{0, 1}, {2, 0xdeadbeef}, {3, 3}}
	m.DataBytes = 1<<20 + 2*PageSize
	m.StateSize, m.StateSum = 12, 0x00c0ffee
	m.Disks = []DiskIdentity{{Name: "root", Path: "/d.qcow2", Format: "qcow2", Device: 1, Inode: 2, Size: 3, ModTime: -4, HeaderSum: "aa",
		Backing: []DiskIdentity{{Name: "root", Path: "/base", Format: "raw", Kind: "file", Device: 1, Inode: 4, Size: 5, ModTime: 6, Born: 7, FilesystemUUID: "u", FilesystemID: "f", SampleSum: "s"}}}}
	m.Files = []File{{Name: "file-0", Path: "/made/root.qcow2", Size: 1 << 40, DataBytes: 3, Sum: 4}, {Name: "file-1", Path: "/made/seed.iso", Size: 5}}
	m.PlanExtras = json.RawMessage(`{"a":[1,2]}`)
	return m
}

func encode(t testing.TB, m *Manifest) []byte {
	t.Helper()
	b, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestManifestRoundTrip(t *testing.T) {
	want := fullManifest()
	b := encode(t, want)
	got, err := ReadManifest(bytes.NewReader(b), ManifestName)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*Manifest{got, want} { // raw JSON is reindented
		for _, raw := range []*json.RawMessage{&m.Specification, &m.PlanExtras} {
			var c bytes.Buffer
			if err := json.Compact(&c, *raw); err != nil {
				t.Fatal(err)
			}
			*raw = c.Bytes()
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read\n%+v, wrote\n%+v", got, want)
	}
}

// edit changes a manifest as JSON and sums it anew.
func edit(t testing.TB, b []byte, change func(map[string]any)) []byte {
	t.Helper()
	fields := make(map[string]any)
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&fields); err != nil {
		t.Fatal(err)
	}
	delete(fields, "manifestSum")
	change(fields)
	b, err := json.MarshalIndent(fields, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	b = bytes.TrimSuffix(b, []byte("\n}"))
	return append(b, sumTrailer(sumOf(b))...)
}

func TestManifestUnknownFields(t *testing.T) {
	b := edit(t, encode(t, fullManifest()), func(f map[string]any) {
		f["compression"] = map[string]any{"level": 3}
		f["cpu"].(map[string]any)["microcode"] = "0x1"
	})
	if _, err := ReadManifest(bytes.NewReader(b), ManifestName); err != nil {
		t.Error(err)
	}
}

func TestManifestSenseless(t *testing.T) {
	set := func(key string, v any) func(map[string]any) {
		return func(f map[string]any) { f[key] = v }
	}
	region := func(i int, key string, v any) func(map[string]any) {
		return func(f map[string]any) { f["regions"].([]any)[i].(map[string]any)[key] = v }
	}
	chunks := func(c ...ChunkSum) func(map[string]any) {
		text, _ := ChunkSums(c).MarshalText()
		return set("chunks", string(text))
	}
	file := func(i int, key string, v any) func(map[string]any) {
		return func(f map[string]any) { f["files"].([]any)[i].(map[string]any)[key] = v }
	}
	tests := []struct {
		name, field string
		change      func(map[string]any)
	}{
		{"file elsewhere", "files[0].name", file(0, "name", "../file-0")},
		{"file is the mark", "files[0].name", file(0, "name", UsedName)},
		{"file of another's", "files[1].name", file(1, "name", "file-0")},
		{"file with a zero", "files[1].name", file(1, "name", "file-01")},
		{"path is relative", "files[0].path", file(0, "path", "made/root.qcow2")},
		{"path goes up", "files[0].path", file(0, "path", "/made/../etc/passwd")},
		{"path has a zero byte", "files[0].path", file(0, "path", "/made/a\x00b")},
		{"path is long", "files[0].path", file(0, "path", "/"+strings.Repeat("x", maxFilePath))},
		{"path of another file", "files[1].path", file(1, "path", "/made/root.qcow2")},
		{"file is huge", "files[0].size", file(0, "size", uint64(1)<<61)},
		{"more data than file", "files[1].dataBytes", file(1, "dataBytes", 6)},
		{"file's sum", "stateSum", file(0, "sum", "xyz")},
		{"too many files", "files", func(f map[string]any) { f["files"] = make([]struct{}, maxFiles+1) }},
		{"no version", "formatVersion", func(f map[string]any) { delete(f, "formatVersion") }},
		{"negative version", "formatVersion", set("formatVersion", -1)},
		{"version is text", "formatVersion", set("formatVersion", "1")},
		{"no id", "id", set("id", "")},
		{"id is a path", "id", set("id", "../../etc")},
		{"no date", "createdAt", set("createdAt", "yesterday")},
		{"unknown layout", "layout", set("layout", "mapped")},
		{"no VMM", "vmm.name", func(f map[string]any) { delete(f, "vmm") }},
		{"unknown sum", "sum", set("sum", "md5")},
		{"no memory", "memorySize", set("memorySize", 0)},
		{"negative memory", "memorySize", set("memorySize", -4096)},
		{"memory overflow", "memorySize", set("memorySize", json.Number("18446744073709551616"))},
		{"fraction of memory", "memorySize", set("memorySize", 4096.5)},
		{"memory not in pages", "memorySize", set("memorySize", 3<<20+PageSize+1)},
		{"too much memory", "memorySize", set("memorySize", json.Number("18446744073709547520"))},
		{"no regions", "regions", set("regions", []any{})},
		{"region without name", "regions[1].name", region(1, "name", "")},
		{"regions of one name", "regions[1].name", region(1, "name", "high")},
		{"empty region", "regions[0].size", region(0, "size", 0)},
		{"region not in pages", "regions[0].size", region(0, "size", 100)},
		{"region larger than memory", "regions[0].size", region(0, "size", 4<<20)},
		{"region beyond memory", "regions[0].offset", region(0, "offset", 3<<20)},
		{"region offset overflow", "regions[0].offset", region(0, "offset", json.Number("18446744073709547520"))},
		{"regions overlap", "regions", region(1, "offset", 1<<20)},
		{"chunk size zero", "chunkSize", set("chunkSize", 0)},
		{"chunk size odd", "chunkSize", set("chunkSize", 3<<20)},
		{"chunk size huge", "chunkSize", set("chunkSize", 1<<40)},
		{"chunks not base64", "chunks", set("chunks", "!")},
		{"chunks cut", "chunks", set("chunks", "AAAA")},
		{"chunk beyond memory", "chunks", chunks(ChunkSum{4, 0})},
		{"chunk twice", "chunks", chunks(ChunkSum{1, 0}, ChunkSum{1, 0})},
		{"chunks out of order", "chunks", chunks(ChunkSum{2, 0}, ChunkSum{1, 0})},
		{"more data than chunks", "dataBytes", set("dataBytes", 4<<20)},
		{"huge state", "stateSize", set("stateSize", json.Number("9223372036854775808"))},
		{"negative state", "stateSize", set("stateSize", -1)},
		{"state sum not hex", "stateSum", set("stateSum", "xyz")},
		{"disk without name", "disks[0].name", func(f map[string]any) { delete(f["disks"].([]any)[0].(map[string]any), "name") }},
		{"negative disk", "disks.size", func(f map[string]any) { f["disks"].([]any)[0].(map[string]any)["size"] = -1 }},
		{"stream with chunks", "chunks", set("layout", "stream")},
	}
	good := encode(t, fullManifest())
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ReadManifest(bytes.NewReader(edit(t, good, tt.change)), "dir/"+ManifestName)
			var format *FormatError
			if !errors.As(err, &format) {
				t.Fatalf("%v is no FormatError", err)
			}
			if format.Field != tt.field || !strings.HasPrefix(err.Error(), "dir/manifest.json: "+tt.field) {
				t.Errorf("field %q in %q, want %q", format.Field, err, tt.field)
			}
		})
	}
}

func TestManifestNewer(t *testing.T) {
	b := []byte(`{"formatVersion": 2, "memorySize": "another type"}`)
	_, err := ReadManifest(bytes.NewReader(b), ManifestName)
	if !errors.Is(err, ErrNewerFormat) || !strings.Contains(err.Error(), "formatVersion") {
		t.Error(err)
	}
}

// TestManifestBitFlips: no single bit can change unnoticed.
func TestManifestBitFlips(t *testing.T) {
	good := encode(t, fullManifest())
	for i := range good {
		for bit := range 8 {
			b := bytes.Clone(good)
			b[i] ^= 1 << bit
			if _, err := ReadManifest(bytes.NewReader(b), ManifestName); err == nil {
				t.Fatalf("bit %d of byte %d flipped: %q: no error", bit, i, b[max(0, i-20):min(len(b), i+20)])
			}
		}
	}
	for n := range good {
		if _, err := ReadManifest(bytes.NewReader(good[:n]), ManifestName); err == nil {
			t.Fatalf("cut to %d bytes: no error", n)
		}
	}
}

func TestManifestTooLarge(t *testing.T) {
	for name, b := range map[string][]byte{
		"bytes":    bytes.Repeat([]byte(" "), maxManifestSize+1),
		"elements": []byte(`{"formatVersion":1,"regions":[` + strings.Repeat("{},", 1<<20) + "{}]}"),
	} {
		var format *FormatError
		if _, err := ReadManifest(bytes.NewReader(b), ManifestName); !errors.As(err, &format) || format.Field != "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestManifestOfLargestGuest: what can be saved can be read back.
func TestManifestOfLargestGuest(t *testing.T) {
	m := manifestFor(maxMemorySize)
	m.FormatVersion, m.ID, m.Layout, m.Sum = FormatVersion, NewID(), LayoutRaw, SumCRC32C
	m.ChunkSize = chunkSizeFor(maxMemorySize)
	for i := range chunkCount(maxMemorySize, m.ChunkSize) {
		m.Chunks = append(m.Chunks, ChunkSum{Index: uint32(i)})
	}
	if _, err := ReadManifest(bytes.NewReader(encode(t, m)), ManifestName); err != nil {
		t.Error(err)
	}
	for size, want := range map[uint64]uint64{PageSize: 1 << 20, 1 << 40: 1 << 20, 1<<40 + PageSize: 2 << 20, 16 << 40: 16 << 20} {
		if got := chunkSizeFor(size); got != want {
			t.Errorf("chunks of %d bytes for %d, want %d", got, size, want)
		}
	}
}

func FuzzReadManifest(f *testing.F) {
	good := encode(f, fullManifest())
	f.Add(good)
	f.Add([]byte(`{"formatVersion":1}`))
	f.Add(edit(f, good, func(m map[string]any) { m["layout"] = "stream"; m["chunks"] = "" }))
	f.Fuzz(func(t *testing.T, b []byte) {
		// The sum would keep the fuzzer from all that is behind it.
		sum := func(b []byte) []byte {
			b = bytes.TrimRight(b, "}\n ")
			return append(bytes.Clone(b), sumTrailer(sumOf(b))...)
		}
		for _, b := range [][]byte{b, sum(b)} {
			m, err := ReadManifest(bytes.NewReader(b), ManifestName)
			var format *FormatError
			var damaged *DamagedError
			if err != nil && !errors.As(err, &format) && !errors.As(err, &damaged) {
				t.Fatalf("%v has no type", err)
			}
			if err != nil {
				continue
			}
			// Whatever is accepted can be used and written again.
			for _, c := range m.Chunks {
				if n := chunkLen(c.Index, m.MemorySize, m.ChunkSize); n <= 0 || n > maxChunkSize {
					t.Fatalf("chunk %d of %d bytes", c.Index, n)
				}
			}
			for _, f := range m.Files {
				if !isFileName(f.Name) || !filepath.IsAbs(f.Path) || filepath.Clean(f.Path) != f.Path {
					t.Fatalf("file %+v", f)
				}
			}
			if _, err := ReadManifest(bytes.NewReader(encode(t, m)), ManifestName); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestOpenReadsManifestOfFolder(t *testing.T) {
	dir := t.TempDir()
	b := []byte(`{"formatVersion": 99}`)
	if err := os.WriteFile(filepath.Join(dir, ManifestName), b, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(dir)
	if !errors.Is(err, ErrNewerFormat) || !strings.Contains(err.Error(), filepath.Join(dir, ManifestName)) {
		t.Error(err)
	}
}
