package disk

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
		{"written, time put back", func(t *testing.T, f *os.File) { writeAt(t, f, 65536, "x") }, nil},
		{"time", func(t *testing.T, f *os.File) { chtimes(t, f, moment.Add(time.Nanosecond)) },
			[]string{"modified at 2026-01-02T03:04:05.000000678Z, now 2026-01-02T03:04:05.000000679Z"}},
		{"size", func(t *testing.T, f *os.File) { truncate(t, f, 1<<20) }, []string{"size 131072 bytes, now 1048576"}},
		{"header", func(t *testing.T, f *os.File) { writeAt(t, f, 63, "\x01") }, []string{"qcow2 header fnv128a:"}},
		{"extension", func(t *testing.T, f *os.File) { writeAt(t, f, 112, "raw.") }, []string{"qcow2 header fnv128a:"}},
		{"no longer a qcow2", func(t *testing.T, f *os.File) { writeAt(t, f, 0, "x") }, []string{"qcow2 header fnv128a:"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHeader()
			h.extension(h.extension(104, 0x1234, "ext."), extensionEnd, "")
			f := file(t, append(h.b, make([]byte, 65536)...))
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
	if got := Changed(identify(t, f), identify(t, g)); len(got) != 1 || !strings.HasPrefix(got[0], "inode ") {
		t.Errorf("%q, want another inode", got)
	}
	before := identify(t, f)
	other := before
	other.Device += 1 << 8
	if got := Changed(before, other); len(got) != 1 || !strings.HasPrefix(got[0], "device number ") {
		t.Errorf("%q, want another device", got)
	}
}

// Identities lie in memory images: the names must last, and an inode of 64 bits must come back whole.
func TestIdentityJSON(t *testing.T) {
	id := Identity{Device: 1<<63 + 1, Inode: 1<<64 - 1, Size: 5, ModTimeNs: 1<<62 + 1, HeaderSum: "s"}
	b, err := json.Marshal(id)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"device":9223372036854775809,"inode":18446744073709551615,"size":5,"modTimeNs":4611686018427387905,"headerSum":"s"}`
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
