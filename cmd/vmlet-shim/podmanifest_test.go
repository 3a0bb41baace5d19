package main

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/memory"
	"github.com/vmlet/vmlet/shim"
)

// writeManifest makes up that of an image, all of whose memory has data.
func writeManifest(t *testing.T, size, chunk uint64, specification string) (path string) {
	t.Helper()
	m := memory.Manifest{
		FormatVersion: memory.FormatVersion, ID: "one", Layout: memory.LayoutRaw, VMM: memory.VMM{Name: "qemu", Version: "1"},
		MemorySize: size, DataBytes: size, Sum: memory.SumCRC32C, ChunkSize: chunk,
		Regions:       []memory.Region{{Name: "ram", Size: size}},
		Specification: json.RawMessage(specification),
	}
	for i := range size / chunk {
		m.Chunks = append(m.Chunks, memory.ChunkSum{Index: uint32(i), Sum: memory.Sum32(i * 2654435761)})
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	b = b[:len(b)-1]
	// As docs/images.md has it.
	b = fmt.Appendf(b, ",\n  \"manifestSum\": \"%08x\"\n}\n", crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	path = filepath.Join(t.TempDir(), memory.ManifestName)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// readHead is what the agent gets of the manifest in a file.
func readHead(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := memory.ReadManifest(f, path)
	if err != nil {
		return nil, err
	}
	return headOf(m, path)
}

// TestManifestsOfLargeVMs: what the agent wants to know of an image doesn't grow with its
// memory, up to the most that an image may have; and what it can't be given is said.
func TestManifestsOfLargeVMs(t *testing.T) {
	const tib = 1 << 40
	for _, test := range []struct {
		size, chunk uint64
	}{{tib, 1 << 20}, {2 * tib, 2 << 20}, {16 * tib, 16 << 20}} {
		path := writeManifest(t, test.size, test.chunk, `{"name":"large"}`)
		head, err := readHead(path)
		if err != nil {
			t.Errorf("%d TiB: %v", test.size/tib, err)
			continue
		}
		if len(head) > 4<<10 {
			t.Errorf("%d TiB: %d bytes for the agent", test.size/tib, len(head))
		}
		m, err := memory.ReadManifest(strings.NewReader(string(head)), "head")
		if err != nil {
			t.Errorf("%d TiB: the agent can't read it: %v", test.size/tib, err)
			continue
		}
		if m.ID != "one" || m.MemorySize != test.size || string(m.Specification) != `{"name":"large"}` {
			t.Errorf("%d TiB: %+v", test.size/tib, m)
		}
	}
	long := writeManifest(t, 1<<20, 1<<20, `"`+strings.Repeat("x", shim.MaxPodManifest)+`"`)
	if _, err := readHead(long); err == nil || !strings.Contains(err.Error(), long) || !strings.Contains(err.Error(), "outside of pods") {
		t.Errorf("a long specification: %v", err)
	}
	damaged := writeManifest(t, 1<<20, 1<<20, `{}`)
	if err := os.WriteFile(damaged, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readHead(damaged); err == nil {
		t.Error("a damaged manifest is taken")
	}
}
