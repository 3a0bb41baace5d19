package disk

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// packed is a file that a program of the standard library or of a known one makes.
func packed(t *testing.T, pack func(*bytes.Buffer) error) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := pack(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func with(content []byte, at int, text string) []byte {
	content = append(bytes.Clone(content), make([]byte, max(0, at+len(text)-len(content)))...)
	copy(content[at:], text)
	return content
}

func tarOf(t *testing.T) []byte { return tarAs(t, tar.FormatUSTAR) }

// oldTar has no magic, and no sum of it.
func oldTar(t *testing.T) []byte {
	content := tarOf(t)
	clear(content[257:512])
	copy(content[148:], "        ")
	sum := 0
	for _, c := range content[:512] {
		sum += int(c)
	}
	copy(content[148:], fmt.Sprintf("%06o\x00 ", sum))
	return content
}

func tarAs(t *testing.T, format tar.Format) []byte {
	return packed(t, func(out *bytes.Buffer) error {
		w := tar.NewWriter(out)
		_ = w.WriteHeader(&tar.Header{Name: "a.vmdk", Size: 4, Mode: 0o600, Format: format})
		_, _ = w.Write([]byte("KDMV"))
		return w.Close()
	})
}

// TestForeign: what is surely no disk is named, and what may be one never is.
func TestForeign(t *testing.T) {
	zipped := packed(t, func(out *bytes.Buffer) error {
		w := zip.NewWriter(out)
		f, _ := w.Create("a.vmdk")
		_, _ = f.Write([]byte("KDMV"))
		return w.Close()
	})
	gz := packed(t, func(out *bytes.Buffer) error { return gzip.NewWriter(out).Close() })
	xzed := packed(t, func(out *bytes.Buffer) error {
		w, _ := xz.NewWriter(out)
		return w.Close()
	})
	zst := packed(t, func(out *bytes.Buffer) error {
		w, _ := zstd.NewWriter(out)
		_, _ = w.Write([]byte("disk"))
		return w.Close()
	})
	random := make([]byte, 64<<10)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(random)
	page := "<!DOCTYPE html><html><body>log in</body></html>"
	text := strings.Repeat("a line of text\n", 4000)
	tests := []struct {
		name    string
		content []byte
		want    string
	}{
		{"tar", tarOf(t), "a tar archive"},
		{"old tar", oldTar(t), "a tar archive"},
		{"GNU tar", tarAs(t, tar.FormatGNU), "a tar archive"},
		{"zip", zipped, "a zip archive"},
		{"zip in parts", append([]byte("PK\x07\x08"), zipped...), "a zip archive"},
		{"7z", []byte("7z\xbc\xaf\x27\x1c\x00\x04"), "a 7z archive"},
		{"rar", []byte("Rar!\x1a\x07\x01\x00"), "a rar archive"},
		{"gzip", gz, "a file compressed by gzip"},
		{"bzip2", []byte("BZh91AY&SY\x00"), "a file compressed by bzip2"},
		{"empty bzip2", []byte("BZh9\x17\x72\x45\x38\x50\x90\x00\x00\x00\x00"), "a file compressed by bzip2"},
		{"xz", xzed, "a file compressed by xz"},
		{"zstd", zst, "a file compressed by zstd"},
		{"lz4", []byte("\x04\x22\x4d\x18\x64\x40"), "a file compressed by lz4"},
		{"mp4", []byte("\x00\x00\x00\x20ftypisom\x00\x00\x02\x00"), "a film"},
		{"pdf", []byte("%PDF-1.7\n%\xe2\xe3\xcf\xd3\x00"), "a PDF"},
		{"json", []byte(`{"error": "not found"}`), "JSON"},
		{"ovf", []byte("<?xml version=\"1.0\"?>\n<Envelope/>"), "XML"},
		{"web page", []byte("\n " + page), "a web page"},
		{"web page with a mark", []byte("\xef\xbb\xbf" + page), "a web page"},
		{"web page in Latin-1", []byte("<html>\xe4\xf6\xfc</html>"), "a web page"},
		{"git-lfs", []byte("version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 1\n"), "a git-lfs pointer"},
		{"checksums", []byte("abc  disk.img\n"), "text"},
		{"long text", []byte(text), "text"},
		{"text of others", []byte(strings.Repeat("aé€🙂\t\n", 4000)), "text"},

		{"nothing", nil, ""},
		{"zeros", make([]byte, 64<<10), ""},
		{"random", random, ""},
		{"boot sector", with(nil, 510, "\x55\xaa"), ""},
		{"boot sector with gzip's first bytes", with(gz, 510, "\x55\xaa"), ""},
		{"boot sector with tar's magic", with(tarOf(t), 510, "\x55\xaa"), ""},
		{"GPT without a boot sector", with(zipped, 512, "EFI PART"), ""},
		{"ISO 9660", with(nil, 32769, "CD001"), ""},
		{"ISO 9660 behind a text", with([]byte(text), 32769, "CD001"), ""},
		{"UDF behind an archive", with(tarOf(t), 32769, "BEA01"), ""},
		{"ext4", with(nil, 1080, "\x53\xef"), ""},
		{"ext4 behind what was there", with(with(gz, 4000, "\x00"), 1080, "\x53\xef"), ""},
		{"LVM behind an archive", with(tarOf(t), 512, "LABELONE"), ""},
		{"RAID behind a text", with([]byte(text), 4096, "\xfc\x4e\x2b\xa9"), ""},
		{"swap behind an archive", with(zipped, 4086, "SWAPSPACE2"), ""},
		{"F2FS behind an archive", with(zipped, 1024, "\x10\x20\xf5\xf2"), ""},
		{"tar's magic without its sum", with(nil, 257, "ustar"), ""},
		{"text of 8 KiB in zeros", with([]byte(text[:8<<10]), 64<<10, "\x00"), ""},
		{"a page in zeros", with([]byte(page), 1<<20-1, "\x00"), ""},
		{"one letter", bytes.Repeat([]byte("U"), 64<<10), ""},
		{"erased flash", bytes.Repeat([]byte{0xff}, 64<<10), ""},
		{"XFS", with(nil, 0, "XFSB\x00\x00\x10\x00"), ""},
		{"Ceph", with(make([]byte, 4096), 0, "bluestore block device\n0f5c\n"), ""},
		{"text in zeros", with(make([]byte, 512), 0, "data for the guest\n"), ""},
		{"text of Windows in UTF-16", []byte("a\x00b\x00c\x00"), ""},
		{"ELF", []byte("\x7fELF\x02\x01\x01\x00"), ""},
		{"squashfs", []byte("hsqs\x00\x01\x00\x00"), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			info, err := Probe(file(t, tt.content))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if info.Foreign != nil {
				got = info.Foreign.What
			}
			if (got == "") != (tt.want == "") || !strings.HasPrefix(got, tt.want) {
				t.Errorf("it is %q, want %q", got, tt.want)
			}
			if tar := info.Foreign != nil && info.Foreign.Tar; tar != strings.HasPrefix(tt.want, "a tar") {
				t.Errorf("it is said to be tar: %v", tar)
			}
		})
	}
}

// TestForeignFormats: what has the signature of a disk's format is one.
func TestForeignFormats(t *testing.T) {
	for _, content := range []string{"# Disk DescriptorFile\nversion=1\n", "QFI\xfb", "LUKS\xba\xbe"} {
		if format := Recognise([]byte(content)); format == Raw {
			t.Errorf("%q is taken for raw", content)
		}
	}
}

// FuzzForeign: no head is misread, and none with a boot sector is refused.
func FuzzForeign(f *testing.F) {
	for _, s := range foreignSignatures() {
		f.Add(with(nil, s.offset, s.bytes))
	}
	f.Add([]byte("<html>"))
	f.Add([]byte("\xef\xbb\xbf\xf0\x9f\x99"))
	f.Fuzz(func(t *testing.T, head []byte) {
		foreign := RecogniseForeign(head)
		if foreign != nil && (foreign.What == "" || foreign.Remedy == "") {
			t.Errorf("%q: %+v", head, foreign)
		}
		if RecogniseForeign(with(head, 510, "\x55\xaa")) != nil {
			t.Errorf("%q with a boot sector is refused", head)
		}
	})
}
