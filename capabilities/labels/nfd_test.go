package labels

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNFDRoundTrip(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "vmlet")
	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, []byte("a=b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadNFD(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file yet: %v", err)
	}
	for _, name := range []string{"intel", "odd", "amd"} { // each over the one before
		want := of(t, document(t, name), "").Labels
		if err := WriteNFD(path, want); err != nil {
			t.Fatal(err)
		}
		got, err := ReadNFD(path)
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("read %v (%v), want %v", got, err, want)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v", info, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("in the folder: %v, %v", entries, err)
	}
	if content, err := os.ReadFile(other); err != nil || string(content) != "a=b\n" {
		t.Errorf("the other file: %q, %v", content, err)
	}
}

func TestNFDRefuses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "vmlet")
	if err := os.WriteFile(path, []byte("old=1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	many := map[string]string{}
	for i := range 2000 {
		many[fmt.Sprintf("cpu-feature.node.kubevirt.io/%d", i)] = "true"
	}
	for _, test := range []struct {
		path   string
		labels map[string]string
		want   string
	}{
		{path, many, "NFD ignores a file of more than 65536"},
		{filepath.Join(dir, "none", "vmlet"), nil, "its folder is not there: make it (mkdir -p"},
		{filepath.Join(dir, ".vmlet"), nil, "begin with a dot"},
		{dir + "/", nil, "begin with a dot"},
		{filepath.Join(path, "x"), nil, "not a directory"},
	} {
		if err := WriteNFD(test.path, test.labels); err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), test.path) {
			t.Errorf("%s: %v, want %s", test.path, err, test.want)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := WriteNFD(filepath.Join(dir, "sub"), nil); err == nil {
		t.Error("a folder was written over")
	}
	entries, _ := os.ReadDir(dir)
	content, err := os.ReadFile(path)
	if err != nil || string(content) != "old=1\n" || len(entries) != 2 {
		t.Errorf("the old file: %q, %v; %v", content, err, entries)
	}
	if _, err := ReadNFD(dir); err == nil {
		t.Error("a folder was read")
	}
	if err := os.WriteFile(path, make([]byte, maxNFD+1), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadNFD(path); err == nil || !strings.Contains(err.Error(), "65536") {
		t.Errorf("too large: %v", err)
	}
}

func TestParseNFD(t *testing.T) {
	got := ParseNFD([]byte("# +expiry-time=2000-01-01T00:00:00Z\n\n a/b=c=d \r\nalone\nempty="))
	want := map[string]string{"a/b": "c=d", "alone": "true", "empty": ""}
	if !maps.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func FuzzParseNFD(f *testing.F) {
	f.Add([]byte("a=b\n#c\nd"))
	f.Fuzz(func(t *testing.T, content []byte) {
		labels := ParseNFD(content)
		merged, _ := Merge(labels, of(t, forget(document(t, "intel"), "vmms", "host"), ""))
		checkValid(t, merged)
		if again := ParseNFD(FormatNFD(merged)); !maps.Equal(again, merged) {
			t.Errorf("written and read again: %q, %q", again, merged)
		}
	})
}
