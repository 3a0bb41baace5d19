package disk

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func identify(t *testing.T, f *os.File) Identity {
	t.Helper()
	id, err := Identify(f)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestChanged(t *testing.T) {
	moment := time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)
	tests := []struct {
		name   string
		change func(t *testing.T, f *os.File)
		want   []string // beginnings of the phrases
	}{
		{"nothing", func(*testing.T, *os.File) {}, nil},
		{"written between samples, time put back", func(t *testing.T, f *os.File) { writeAt(t, f, 512<<10, "x") }, nil},
		{"written at the front, time put back", func(t *testing.T, f *os.File) { writeAt(t, f, 65536, "x") }, []string{"content differs"}},
		{"written in the first partition, time put back", func(t *testing.T, f *os.File) { writeAt(t, f, 1<<20+1080, "x") }, []string{"content differs"}},
		{"written at the end, time put back", func(t *testing.T, f *os.File) { writeAt(t, f, 2<<20+65535, "x") }, []string{"content differs"}},
		{"time", func(t *testing.T, f *os.File) { chtimes(t, f, moment.Add(time.Nanosecond)) },
			[]string{"modified at 2026-01-02T03:04:05.000000678Z, now 2026-01-02T03:04:05.000000679Z"}},
		{"size", func(t *testing.T, f *os.File) { truncate(t, f, 3<<20) }, []string{"size 2162688 bytes, now 3145728"}},
		{"header", func(t *testing.T, f *os.File) { writeAt(t, f, 63, "\x01") }, []string{"content differs", "qcow2 header fnv128a:"}},
		{"extension", func(t *testing.T, f *os.File) { writeAt(t, f, 112, "raw.") }, []string{"content differs", "qcow2 header fnv128a:"}},
		{"no longer a qcow2", func(t *testing.T, f *os.File) { writeAt(t, f, 0, "x") }, []string{"content differs", "qcow2 header fnv128a:"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHeader()
			h.extension(h.extension(104, 0x1234, "ext."), extensionEnd, "")
			f := file(t, append(h.b, make([]byte, 2<<20)...))
			chtimes(t, f, moment)
			before := identify(t, f)
			tt.change(t, f)
			if tt.name != "time" {
				chtimes(t, f, moment)
			}
			got := Changed(before, identify(t, f))
			if len(got) != len(tt.want) {
				t.Fatalf("%q, want %q", got, tt.want)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], tt.want[i]) {
					t.Errorf("%q, want %q", got, tt.want)
				}
			}
		})
	}
}

// A copy with the same content and times is another disk.
func TestChangedReplaced(t *testing.T) {
	moment := time.Unix(1e9, 0)
	content := make([]byte, 4096)
	f, g := file(t, content), file(t, content)
	chtimes(t, f, moment)
	chtimes(t, g, moment)
	got := Changed(identify(t, f), identify(t, g))
	if !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "inode ") }) {
		t.Errorf("%q, want another inode", got)
	}
}

// What two identities say of one another, whatever filesystems this machine has.
func TestChangedRule(t *testing.T) {
	file := Identity{
		Kind: KindFile, Device: 0x801, Inode: 7, Size: 1 << 20, ModTimeNs: 5, BornNs: 3,
		FilesystemUUID: "uuid-1", FilesystemID: "id-1", SampleSum: "sample-1",
	}
	nfs := file // no identity of its filesystem, no time of birth
	nfs.BornNs, nfs.FilesystemUUID, nfs.FilesystemID = 0, "", ""
	block := Identity{Kind: KindBlock, Device: 0xfd00, Size: 1 << 30, SampleSum: "sample-1"}
	old := Identity{Device: 0x801, Inode: 7, Size: 1 << 20, ModTimeNs: 5} // written before there was Kind
	tests := []struct {
		name   string
		before Identity
		change func(*Identity)
		want   []string // beginnings of the phrases
	}{
		{"unchanged", file, func(*Identity) {}, nil},
		{"another device number", file, func(i *Identity) { i.Device = 0x811 }, nil},
		{"another mount of NFS", nfs, func(i *Identity) { i.Device = 0x30 }, nil},
		{"another filesystem", file, func(i *Identity) { i.FilesystemUUID = "uuid-2" }, []string{"filesystem uuid-1, now uuid-2"}},
		{"a kernel that knows no UUIDs", file, func(i *Identity) { i.FilesystemUUID = "" }, nil},
		{"such a kernel, another filesystem", file, func(i *Identity) { i.FilesystemUUID, i.FilesystemID = "", "id-2" }, []string{"filesystem id-1, now id-2"}},
		{"another f_fsid, the same UUID", file, func(i *Identity) { i.FilesystemID = "id-2" }, nil},
		{"the inode of a file that was removed", file, func(i *Identity) { i.BornNs = 4 }, []string{"made at "}},
		{"replaced", file, func(i *Identity) { i.Inode = 8 }, []string{"inode 7, now 8"}},
		{"written to", file, func(i *Identity) { i.ModTimeNs = 6 }, []string{"modified at "}},
		{"written to on NFS", nfs, func(i *Identity) { i.ModTimeNs = 6 }, []string{"modified at "}},
		{"written to, time put back", file, func(i *Identity) { i.SampleSum = "sample-2" }, []string{"content differs"}},
		{"a block device in its place", file, func(i *Identity) { *i = block }, []string{"kind file, now block"}},
		{"block device", block, func(*Identity) {}, nil},
		{"block device attached again", block, func(i *Identity) { i.Device = 0xfd01 }, nil},
		{"block device grown", block, func(i *Identity) { i.Size++ }, []string{"size "}},
		{"block device mounted", block, func(i *Identity) { i.SampleSum = "sample-2" }, []string{"content differs"}},
		{"old image", old, func(i *Identity) { *i = file }, nil},
		{"old image, another device number", old, func(i *Identity) { *i = file; i.Device = 0x811 }, []string{"device number 8:1, now 8:17"}},
		{"old image, written to", old, func(i *Identity) { *i = file; i.ModTimeNs = 6 }, []string{"modified at "}},
	}
	for _, tt := range tests {
		after := tt.before
		tt.change(&after)
		got := Changed(tt.before, after)
		if len(got) > len(tt.want) && len(tt.want) > 0 {
			got = got[:len(tt.want)]
		}
		if !slices.EqualFunc(got, tt.want, strings.HasPrefix) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	if block.Provable() || !file.Provable() || !old.Provable() {
		t.Error("a block device alone can't be shown to be unchanged")
	}
}

// An f_fsid that is made of the device number changes with it.
func TestLastingID(t *testing.T) {
	tests := []struct {
		name         string
		fsid, device uint64
		want         string
	}{
		{"none", 0, unix.Mkdev(8, 1), ""},
		{"XFS on 8:1", 0x801, unix.Mkdev(8, 1), ""},
		{"XFS on 259:300", 300&0xff | 259<<8 | 300&^0xff<<12, unix.Mkdev(259, 300), ""},
		{"ext4", 0x405c7151aba47d7e, unix.Mkdev(8, 1), "405c7151aba47d7e"},
		{"small, and no device's", 0x802, unix.Mkdev(8, 1), "0000000000000802"},
	}
	for _, tt := range tests {
		if got := lastingID(tt.fsid, tt.device); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// Identities lie in memory images: the names must last, and an inode of 64 bits must come back whole.
func TestIdentityJSON(t *testing.T) {
	id := Identity{
		Kind: KindFile, Device: 1<<63 + 1, Inode: 1<<64 - 1, Size: 5, ModTimeNs: 1<<62 + 1, BornNs: 1<<62 + 2,
		FilesystemUUID: "u", FilesystemID: "f", HeaderSum: "s", SampleSum: "a",
	}
	b, err := json.Marshal(id)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"kind":"file","device":9223372036854775809,"inode":18446744073709551615,"size":5,"modTimeNs":4611686018427387905,` +
		`"bornNs":4611686018427387906,"filesystemUuid":"u","filesystemId":"f","headerSum":"s","sampleSum":"a"}`
	if string(b) != want {
		t.Errorf("%s, want %s", b, want)
	}
	var back Identity
	if err := json.Unmarshal(b, &back); err != nil || back != id {
		t.Errorf("%+v, %v", back, err)
	}
}

func TestIdentifyPassesErrorsOn(t *testing.T) {
	dir, err := os.Open(filepath.Dir(file(t, nil).Name()))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if _, err := Identify(dir); err == nil {
		t.Error("a folder has an identity")
	}
}

func writeAt(t *testing.T, f *os.File, at int64, s string) {
	t.Helper()
	if _, err := f.WriteAt([]byte(s), at); err != nil {
		t.Fatal(err)
	}
}

func truncate(t *testing.T, f *os.File, size int64) {
	t.Helper()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
}

func chtimes(t *testing.T, f *os.File, to time.Time) {
	t.Helper()
	if err := os.Chtimes(f.Name(), to, to); err != nil {
		t.Fatal(err)
	}
}
