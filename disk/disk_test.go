package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// header makes the first cluster of a version 3 image, for tests to spoil.
type header struct {
	b []byte
}

func newHeader() *header {
	h := &header{b: make([]byte, 65536)}
	copy(h.b, qcowMagic)
	h.u32(4, 3)        // version
	h.u32(20, 16)      // cluster_bits
	h.u64(24, 1<<20)   // size
	h.u32(36, 1)       // l1_size
	h.u64(40, 0x30000) // l1_table_offset
	h.u64(48, 0x10000) // refcount_table_offset
	h.u32(56, 1)       // refcount_table_clusters
	h.u32(96, 4)       // refcount_order
	h.u32(100, 104)    // header_length
	return h
}

func (h *header) u32(at int, v uint32) *header { binary.BigEndian.PutUint32(h.b[at:], v); return h }
func (h *header) u64(at int, v uint64) *header { binary.BigEndian.PutUint64(h.b[at:], v); return h }

// extension puts a header extension at an offset and returns where the next one goes.
func (h *header) extension(at int, kind uint32, data string) int {
	h.u32(at, kind).u32(at+4, uint32(len(data)))
	copy(h.b[at+8:], data)
	return at + 8 + (len(data)+7)/8*8
}

func (h *header) backing(at int, name string) *header {
	copy(h.b[at:], name)
	return h.u64(8, uint64(at)).u32(16, uint32(len(name)))
}

func file(t *testing.T, content []byte) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "image"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestProbeFormats(t *testing.T) {
	at := func(offset int, s string) []byte { return append(make([]byte, offset), s...) }
	tests := []struct {
		name    string
		content []byte
		want    Format
	}{
		{"empty", nil, Raw},
		{"short", []byte("Q"), Raw},
		{"zeros", make([]byte, 4096), Raw},
		{"boot sector", at(510, "\x55\xaa"), Raw},
		{"qcow2", newHeader().b, QCOW2},
		{"qcow", at(0, "QFI\xfb\x00\x00\x00\x01"), QCOW},
		{"qed", at(0, "QED\x00....."), QED},
		{"vmdk sparse", at(0, "KDMV\x01"), VMDK},
		{"vmdk of ESX", at(0, "COWD\x01"), VMDK},
		{"vmdk descriptor", at(0, "# Disk DescriptorFile\nversion=1\n"), VMDK},
		{"vdi", at(64, "\x7f\x10\xda\xbe"), VDI},
		{"vdi cut off", at(64, "\x7f\x10\xda"), Raw},
		{"vhdx", at(0, "vhdxfile"), VHDX},
		{"vpc", at(0, "conectix"), VPC},
		{"parallels", at(0, "WithouFreSpacExt"), Parallels},
		{"bochs", at(0, "Bochs Virtual HD Image\x00"), Bochs},
		{"luks", at(0, "LUKS\xba\xbe\x00\x02"), LUKS},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			info, err := Probe(file(t, tt.content))
			if err != nil {
				t.Fatal(err)
			}
			if info.Format != tt.want || info.FileSize != int64(len(tt.content)) || info.BlockDevice {
				t.Errorf("%+v, want %s of %d bytes", info, tt.want, len(tt.content))
			}
			if (info.Header != nil) != (tt.want == QCOW2) {
				t.Errorf("header %+v", info.Header)
			}
			if tt.want == Raw && info.VirtualSize != info.FileSize {
				t.Errorf("virtual size %d", info.VirtualSize)
			}
		})
	}
}

func TestProbeLeavesOffset(t *testing.T) {
	f := file(t, newHeader().b)
	if _, err := f.Seek(7, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := Probe(f); err != nil {
		t.Fatal(err)
	}
	if at, err := f.Seek(0, 1); err != nil || at != 7 {
		t.Errorf("offset %d, %v, want 7", at, err)
	}
}

func TestProbeRefusesKinds(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for what, f := range map[string]*os.File{"a pipe": r, "a folder": dir, "a character device": null} {
		if _, err := Probe(f); !errors.Is(err, fs.ErrInvalid) || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestHeaderFields(t *testing.T) {
	h := newHeader().u32(60, 3).u64(72, 1<<0|1<<1|1<<2|1<<9).u64(88, 1<<1).u32(32, 2)
	at := h.extension(104, extensionBackingFormat, "raw")
	at = h.extension(at, 0x12345678, "not known, passed over")
	at = h.extension(at, extensionDataFile, "data.raw")
	h.extension(at, extensionEnd, "")
	h.backing(at+64, "base.img")
	info, err := Probe(file(t, h.b))
	if err != nil {
		t.Fatal(err)
	}
	got := *info.Header
	want := Header{
		Version: 3, VirtualSize: 1 << 20, ClusterSize: 65536, BackingFile: "base.img", BackingFormat: "raw",
		ExternalData: true, DataFile: "data.raw", RawExternalData: true, Encryption: "luks",
		Dirty: true, Corrupt: true, UnknownFeatures: 1 << 9, Snapshots: 3, Sum: got.Sum,
	}
	if got != want {
		t.Errorf("header\n%+v, want\n%+v", got, want)
	}
	if info.VirtualSize != 1<<20 {
		t.Errorf("virtual size %d", info.VirtualSize)
	}
}

// Version 2 has none of version 3's fields: what lies there are extensions.
func TestHeaderVersion2(t *testing.T) {
	h := newHeader().u32(4, 2)
	clear(h.b[72:])
	h.extension(h.extension(72, extensionBackingFormat, "qcow2"), extensionEnd, "")
	info, err := Probe(file(t, h.backing(1000, "b").b))
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Header; got.Version != 2 || got.BackingFormat != "qcow2" || got.BackingFile != "b" || got.Corrupt {
		t.Errorf("%+v", got)
	}
}

func TestHeaderHostile(t *testing.T) {
	tests := []struct {
		name  string
		field string
		spoil func(h *header)
	}{
		{"cut in the fixed part", "header", func(h *header) { h.b = h.b[:71] }},
		{"cut in version 3's part", "header", func(h *header) { h.b = h.b[:103] }},
		{"magic only", "header", func(h *header) { h.b = h.b[:4] }},
		{"version 0", "version", func(h *header) { h.u32(4, 0) }},
		{"version 4", "version", func(h *header) { h.u32(4, 4) }},
		{"clusters too small", "cluster_bits", func(h *header) { h.u32(20, 8) }},
		{"clusters too large", "cluster_bits", func(h *header) { h.u32(20, 22) }},
		{"cluster bits past a word", "cluster_bits", func(h *header) { h.u32(20, 1<<31|16) }},
		{"negative size", "size", func(h *header) { h.u64(24, 1<<63) }},
		{"unknown encryption", "crypt_method", func(h *header) { h.u32(32, 3) }},
		{"vast L1 table", "l1_size", func(h *header) { h.u32(36, 1<<32-1) }},
		{"many snapshots", "nb_snapshots", func(h *header) { h.u32(60, 65537) }},
		{"L1 table not aligned", "l1_table_offset", func(h *header) { h.u64(40, 0x30001) }},
		{"refcounts not aligned", "refcount_table_offset", func(h *header) { h.u64(48, 512) }},
		{"snapshots not aligned", "snapshots_offset", func(h *header) { h.u64(64, 512) }},
		{"refcounts too wide", "refcount_order", func(h *header) { h.u32(96, 7) }},
		{"header too short", "header_length", func(h *header) { h.u32(100, 96) }},
		{"header not a multiple of 8", "header_length", func(h *header) { h.u32(100, 108) }},
		{"header over its cluster", "header_length", func(h *header) { h.u32(100, 65544) }},
		{"backing name in the header", "backing_file_offset", func(h *header) { h.backing(80, "x") }},
		{"backing name past the cluster", "backing_file_offset", func(h *header) { h.u64(8, 65536).u32(16, 1) }},
		{"backing name far away", "backing_file_offset", func(h *header) { h.u64(8, 1<<63).u32(16, 1) }},
		{"backing name over the cluster's end", "backing_file_size", func(h *header) { h.u64(8, 65530).u32(16, 7) }},
		{"backing name too long", "backing_file_size", func(h *header) { h.u64(8, 2000).u32(16, 1024) }},
		{"backing name empty", "backing_file_size", func(h *header) { h.u64(8, 2000).u32(16, 0) }},
		{"backing name cut off", "backing_file_size", func(h *header) { h.backing(2000, "base"); h.b = h.b[:2002] }},
		{"backing name with NUL", "backing file name", func(h *header) { h.backing(2000, "a\x00b") }},
		{"file ends in the extensions", "header extension", func(h *header) { h.b = h.b[:104] }},
		{"extension past the cluster", "header extension", func(h *header) { h.u32(104, 1).u32(108, 65536) }},
		{"extension past everything", "header extension", func(h *header) { h.u32(104, 1).u32(108, 1<<32-1) }},
		{"extension into the backing name", "header extension", func(h *header) { h.backing(120, "b"); h.u32(104, 1).u32(108, 9) }},
		{"extension's head cut by the backing name", "header extension", func(h *header) { h.backing(108, "b") }},
		{"format name too long", "backing file format name", func(h *header) { h.extension(104, extensionBackingFormat, strings.Repeat("x", 16)) }},
		{"format name with NUL", "backing file format name", func(h *header) { h.extension(104, extensionBackingFormat, "raw\x00") }},
		{"data file name too long", "external data file name", func(h *header) { h.extension(104, extensionDataFile, strings.Repeat("x", 4097)) }},
		{"data file name with NUL", "external data file name", func(h *header) { h.extension(104, extensionDataFile, "\x00") }},
		{"data file named twice", "header extension", func(h *header) { h.extension(h.extension(104, extensionDataFile, "a"), extensionDataFile, "b") }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHeader()
			tt.spoil(h)
			info, err := Probe(file(t, h.b))
			var bad *HeaderError
			if !errors.As(err, &bad) || bad.Field != tt.field {
				t.Errorf("%+v, error %v, want one about %s", info, err, tt.field)
			}
		})
	}
}

// The whole first cluster is walked at most, in little memory, however many extensions there are.
func TestHeaderBounded(t *testing.T) {
	h := newHeader().u32(20, 21) // 2 MiB clusters
	h.u64(40, 0).u64(48, 0)
	h.b = append(h.b, make([]byte, 4<<20)...)
	for at := 104; at < len(h.b); at += 8 {
		h.u32(at, 0xABCD)
	}
	in := &countingReader{in: bytes.NewReader(h.b)}
	if _, err := readHeader(in); err != nil {
		t.Fatal(err)
	}
	if limit := 2<<20 + 8192; in.read > limit {
		t.Errorf("%d bytes read, more than %d", in.read, limit)
	}
}

type countingReader struct {
	in   *bytes.Reader
	read int
}

func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.in.Read(b)
	c.read += n
	return n, err
}

func FuzzHeader(f *testing.F) {
	f.Add(newHeader().b[:256])
	v2 := newHeader().u32(4, 2)
	clear(v2.b[72:])
	f.Add(v2.backing(128, "base").b[:256])
	h := newHeader()
	h.extension(h.extension(104, extensionBackingFormat, "raw"), extensionDataFile, "data")
	f.Add(h.b[:512])
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := readHeader(bytes.NewReader(b))
		if err != nil {
			var bad *HeaderError
			if !errors.As(err, &bad) {
				t.Fatalf("%v is no HeaderError", err)
			}
			return
		}
		if len(h.BackingFile) > maxBackingName || len(h.BackingFormat) > maxFormatName || len(h.DataFile) > maxDataName || h.VirtualSize < 0 {
			t.Fatalf("%+v", h)
		}
		again, err := readHeader(bytes.NewReader(b))
		if err != nil || *again != *h {
			t.Fatalf("%+v, then %+v, %v", h, again, err)
		}
		Check(Info{Format: QCOW2, Header: h}, Expectation{Field: "disks[0].path", Image: Image{"/d/i", QCOW2}})
	})
}

// The size of a block device doesn't come from its node.
func TestProbeBlockDevice(t *testing.T) {
	content := make([]byte, 1<<20)
	copy(content, newHeader().b)
	dev := loopDevice(t, file(t, content))
	info, err := Probe(dev)
	if err != nil {
		t.Fatal(err)
	}
	if !info.BlockDevice || info.FileSize != 1<<20 || info.Format != QCOW2 {
		t.Errorf("%+v, want a block device of 1 MiB with a qcow2 on it", info)
	}
	id, err := Identify(dev)
	if err != nil {
		t.Fatal(err)
	}
	if id.Device == 0 || id.Inode != 0 || id.ModTimeNs != 0 || id.Size != 1<<20 || id.HeaderSum != info.Header.Sum {
		t.Errorf("identity %+v", id)
	}
}

// loopDevice attaches a file to a free loop device (linux/loop.h), and skips where that isn't allowed.
func loopDevice(t *testing.T, backing *os.File) *os.File {
	t.Helper()
	ctl, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer ctl.Close()
	n, err := unix.IoctlRetInt(int(ctl.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		t.Skip(err)
	}
	dev, err := os.OpenFile(filepath.Join("/dev", "loop"+strconv.Itoa(n)), os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { dev.Close() })
	if err := unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_SET_FD, int(backing.Fd())); err != nil {
		t.Skip(err) // another took it in the meantime, or we may not
	}
	t.Cleanup(func() {
		if err := unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_CLR_FD, 0); err != nil {
			t.Error(err)
		}
	})
	return dev
}
