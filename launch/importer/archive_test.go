package importer

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/vmlet/vmlet/launch"
)

// archived is a file of an archive.
type archived struct {
	name    string
	content []byte
}

func tarOf(t testing.TB, files ...archived) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Size: int64(len(f.content)), Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(f.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func gzipped(t *testing.T, content []byte) []byte {
	t.Helper()
	return pack(t, content, func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil })
}

// bzipped has a disk of 1 MiB with a boot signature and "disk" at 1000, twice: bzip2 may put streams one after the other.
func bzipped(t *testing.T) (packed, content []byte) {
	t.Helper()
	packed, err := base64.StdEncoding.DecodeString("QlpoOTFBWSZTWc5+xuYACAfjkcAAAAQCAAQoCAAAEAIAAAggAFCAGAVKRg9SzuEQA5n7JEgExeW3YQB4XckU4UJDOfsbmA==")
	if err != nil {
		t.Fatal(err)
	}
	content = make([]byte, mi)
	copy(content[510:], "\x55\xaa")
	copy(content[1000:], "disk")
	return append(packed, packed...), append(content, content...)
}

// TestArchives: the one disk of an archive, from a server and from a container image, whatever its name.
func TestArchives(t *testing.T) {
	content := someDisk()
	beside := []archived{{"a.ovf", []byte("<?xml version=\"1.0\"?>")}, {"a.nvram", make([]byte, 8684)}, {"a.mf", []byte("SHA256 = ab\n")}}
	ova := func(format string) []byte {
		return tarOf(t, append([]archived{beside[0], {"../../a.vmdk", read(t, image(t, format, content))}}, beside[1:]...)...)
	}
	bz2, ofBzip2 := bzipped(t)
	for name, c := range map[string]struct{ offered, want []byte }{
		"tar":       {ova("raw"), content},
		"tar.gz":    {gzipped(t, ova("raw")), content},
		"OVA":       {ova("vmdk"), content},
		"bzip2":     {bz2, ofBzip2},
		"in a disk": {append(someDisk(), tarOf(t)...), append(someDisk(), tarOf(t)...)},
	} {
		t.Run(name, func(t *testing.T) {
			i := fromSite(t, &website{content: c.offered})
			if err := i.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantDisk(t, i, c.want, whole)
		})
		t.Run(name+" of an image", func(t *testing.T) {
			i := fromFile(t, c.offered)
			if err := i.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantDisk(t, i, c.want, whole)
		})
	}
}

// fromFile imports a file of a container image.
func fromFile(t *testing.T, content []byte) *Importer {
	t.Helper()
	i := claim(t)
	i.File = &launch.ImportFile{Socket: filepath.Join(t.TempDir(), "s"), Image: "example.com/disk:1"}
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	handOut(t, i.File.Socket, func() (*os.File, error) { return os.Open(path) })
	return i
}

// TestNoDisk: what is no disk, or leaves open which, becomes none, and the error says what to do.
func TestNoDisk(t *testing.T) {
	content := someDisk()
	var zipped bytes.Buffer
	w := zip.NewWriter(&zipped)
	if f, err := w.Create("disk.raw"); err != nil {
		t.Fatal(err)
	} else if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	many := make([]archived, maxArchived+1)
	for n := range many {
		many[n].name = fmt.Sprint(n)
	}
	whole := tarOf(t, archived{"a.raw", content})
	for name, c := range map[string]struct {
		content []byte
		want    string
	}{
		"zip":               {zipped.Bytes(), "it is a zip archive, not a disk: unpack it"},
		"zip in gz":         {gzipped(t, zipped.Bytes()), "it is a zip archive, not a disk"},
		"film":              {[]byte("\x00\x00\x00\x20ftypisom\x00\x00\x02\x00"), "it is a film"},
		"JSON":              {[]byte(`{"error":"gone"}`), "it is JSON, not a disk"},
		"git-lfs":           {[]byte("version https://git-lfs.github.com/spec/v1\n"), "git lfs pull"},
		"two disks":         {tarOf(t, archived{"a.raw", content}, archived{"b.raw", content}), `more than one disk, "a.raw" and "b.raw": unpack it`},
		"vmdk in two files": {tarOf(t, archived{"a.vmdk", []byte("# Disk DescriptorFile\n")}, archived{"a-flat.vmdk", content}), "more than one disk"},
		"no disk":           {tarOf(t, archived{"a.txt", []byte("text")}, archived{"a.zip", zipped.Bytes()}), "it has no disk"},
		"empty tar.gz":      {gzipped(t, tarOf(t, archived{"a", nil})), "it has no disk"},
		"many files":        {tarOf(t, many...), "more than 1000 files"},
		"cut off":           {whole[:len(whole)/2], "the tar archive can't be used: unexpected EOF"},
		"damaged tar.gz":    {patched(gzipped(t, whole), len(gzipped(t, whole))-8, []byte("1234")), "can't be decompressed"},
		"bomb":              {gzipped(t, tarOf(t, archived{"a.txt", bytes.Repeat([]byte("text"), 13*mi)})), "has more than the"},
		"too large":         {tarOf(t, archived{"a.raw", make([]byte, 33*mi)}), "has more than the"},
	} {
		t.Run(name, func(t *testing.T) {
			i := fromSite(t, &website{content: c.content})
			wantFault(t, i, i.Run(t.Context()), c.want)
			i = fromFile(t, c.content)
			wantFault(t, i, i.Run(t.Context()), c.want)
		})
	}
}

// FuzzTar: no archive makes the importer panic, or write what is no disk.
func FuzzTar(f *testing.F) {
	f.Add(tarOf(f, archived{"a", []byte("QFI\xfb")}))
	f.Add(tarOf(f, archived{"a", make([]byte, leastDisk)}))
	f.Fuzz(func(t *testing.T, content []byte) {
		folder := t.TempDir()
		i := &Importer{Import: launch.Import{Folder: folder, Size: 4 * mi}, Progress: new(Progress)}
		d := &download{Importer: i, target: &target{folder: folder, room: 4 * mi, size: 4 * mi}, stream: &stream{ctx: t.Context()}}
		defer d.close()
		if err := d.fromTar(bytes.NewReader(content)); err == nil && d.file == nil {
			t.Error("there is neither a disk nor an error")
		}
	})
}
