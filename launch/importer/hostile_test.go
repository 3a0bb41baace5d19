package importer

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/pem"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/launch"
)

func pemOf(certificate []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
}

// TestHostileImages: an image that names other files, or is not what it says, is refused; nothing that
// it names is read.
func TestHostileImages(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, bytes.Repeat([]byte("secret "), 1<<16), 0o600); err != nil {
		t.Fatal(err)
	}
	qcow2 := func(options ...string) []byte {
		path := filepath.Join(t.TempDir(), "image")
		qemuImg(t, append([]string{"create", "-q", "-f", "qcow2"}, append(options, path)...)...)
		return read(t, path)
	}
	dataFile := func() []byte {
		path := filepath.Join(t.TempDir(), "image")
		qemuImg(t, "create", "-q", "-f", "qcow2", "-o", "data_file="+secret+".data", path, "1M")
		return read(t, path)
	}
	large := filepath.Join(t.TempDir(), "large")
	qemuImg(t, "create", "-q", "-f", "qcow2", large, "1T")
	content := read(t, image(t, "qcow2", someDisk()))
	vmdk := read(t, image(t, "vmdk", someDisk()))
	for name, c := range map[string]struct {
		image []byte
		want  string
	}{
		"backing file":     {qcow2("-F", "raw", "-b", secret), "it lies over"},
		"data file":        {dataFile(), "its data is in another file"},
		"huge disk":        {read(t, large), "the disk has 1099511627776 bytes, and the claim has room for 33554432"},
		"truncated":        {content[:len(content)/2], "the qcow2 image is damaged"},
		"header alone":     {content[:72], "header"},
		"bad tables":       {patched(content, 40, binary.BigEndian.AppendUint64(nil, 1<<40)), "the qcow2 image is damaged"},
		"encrypted":        {patched(content, 32, []byte{0, 0, 0, 2}), "it is encrypted"},
		"unknown feature":  {patched(content, 72, []byte{0, 0, 1}), "features that aren't known"},
		"description":      {[]byte("# Disk DescriptorFile\nversion=1\nCID=1\nparentCID=ffffffff\ncreateType=\"monolithicFlat\"\nRW 2048 FLAT \"" + secret + "\" 0\n"), "names other files"},
		"inner":            {patched(vmdk, 12, make([]byte, 8)), "names other files"},
		"old qcow":         {append([]byte("QFI\xfb\x00\x00\x00\x01"), make([]byte, 200)...), "format qcow are not supported"},
		"parallels":        {append([]byte("WithoutFreeSpace"), make([]byte, 200)...), "format parallels are not supported"},
		"vhdx that is not": {append([]byte("vhdxfile"), make([]byte, 2000)...), "looking at the vhdx image"},
	} {
		t.Run(name, func(t *testing.T) {
			i := fromSite(t, &website{content: c.image})
			wantFault(t, i, i.Run(t.Context()), c.want)
		})
	}
}

func patched(image []byte, at int, with []byte) []byte {
	other := bytes.Clone(image)
	copy(other[at:], with)
	return other
}

// TestLinks: nothing on the claim leads elsewhere.
func TestLinks(t *testing.T) {
	elsewhere := filepath.Join(t.TempDir(), "file")
	content := someDisk()
	for _, name := range []string{madeName, rawName, "disk.img"} {
		i := fromSite(t, &website{content: read(t, image(t, "qcow2", content))})
		if err := os.Symlink(elsewhere, filepath.Join(i.Folder, name)); err != nil {
			t.Fatal(err)
		}
		if err := i.Run(t.Context()); name == madeName {
			if err == nil || !strings.Contains(err.Error(), "too many levels of symbolic links") {
				t.Errorf("%s: %v", name, err)
			}
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
		} else {
			wantDisk(t, i, content, whole) // in the link's place
		}
		if _, err := os.Lstat(elsewhere); err == nil {
			t.Errorf("%s: a link of that name was followed", name)
		}
	}
	from := t.TempDir()
	if err := os.Symlink("/etc/passwd", filepath.Join(from, "disk.img")); err != nil {
		t.Fatal(err)
	}
	i := claim(t)
	i.Copy = &launch.ImportCopy{Path: from, Claim: "c"}
	wantFault(t, i, i.Run(t.Context()), "too many levels of symbolic links")
}

// TestDictionary: an xz file that wants more memory than there is for it.
func TestDictionary(t *testing.T) {
	i := fromSite(t, &website{content: append([]byte("\xfd7zXZ\x00\x00\x04\xe6\xd6\xb4\x46\x02\x00\x21\x01\x28"), make([]byte, 100)...)})
	wantFault(t, i, i.Run(t.Context()), "its xz dictionary has 4294967295 bytes")
	i = fromSite(t, &website{content: []byte("\x28\xb5\x2f\xfd\x00\xff" + string(make([]byte, 100)))})
	wantFault(t, i, i.Run(t.Context()), "can't be decompressed")
}

// FuzzDecompress: no beginning of a file makes the importer panic, or take more than it is given.
func FuzzDecompress(f *testing.F) {
	f.Add([]byte("\x1f\x8b\x08"))
	f.Add([]byte("\xfd7zXZ\x00\x00\x04\xe6\xd6\xb4\x46\x02\x00\x21\x01\x16"))
	f.Add([]byte("\x28\xb5\x2f\xfd\x00\x58"))
	f.Add([]byte("QFI\xfb"))
	f.Fuzz(func(t *testing.T, content []byte) {
		plain, _, err := decompress(bufio.NewReaderSize(bytes.NewReader(content), 64<<10))
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(plain, 1<<20))
	})
}
