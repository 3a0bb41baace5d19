package iso9660

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"

	"github.com/vmlet/vmlet/internal/iso9660/isotest"
)

func TestImage(t *testing.T) {
	long := strings.Repeat("0123456789\n", 20000)
	var many []File
	for i := range MaxFiles {
		many = append(many, File{fmt.Sprintf("config-map-key-%d.yaml", i), []byte(fmt.Sprint(i))})
	}
	for name, files := range map[string][]File{
		"none":            nil,
		"one":             {{"user-data", []byte("#cloud-config\n")}},
		"empty between":   {{"a", []byte("1")}, {"b", nil}, {"c", []byte("2")}},
		"longer":          {{"user-data", []byte(long)}, {"meta-data", []byte(long[:SectorSize])}, {"é", []byte("é")}},
		"folders":         {{"openstack/latest/user_data", []byte("x")}, {"openstack/2015-10-15/user_data", []byte("y")}, {"a", []byte("z")}},
		"case and length": {{"Tls.crt", []byte("1")}, {"tls.crt", []byte("2")}, {strings.Repeat("n", MaxName), []byte("3")}},
		"dots":            {{".hidden", []byte("1")}, {"a.b.c", []byte("2")}, {"a.", []byte("3")}},
		"many":            many,
	} {
		t.Run(name, func(t *testing.T) {
			want := make(map[string]string)
			for _, f := range files {
				want[f.Path] = string(f.Content)
			}
			image, err := Image("cfgdata", files)
			if err != nil {
				t.Fatal(err)
			}
			if rest := len(image) % 4096; rest != 0 {
				t.Errorf("the image has %d bytes: a disk with blocks of 4 KiB can't have the last %d", len(image), rest)
			}
			label, got := isotest.Read(t, image)
			if label != "cfgdata" || !maps.Equal(got, want) {
				t.Errorf("volume %q has %.300q, want %.300q", label, got, want)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	many := make([]File, MaxFiles+1)
	for name, test := range map[string]struct {
		label string
		files []File
		want  string
	}{
		"no label":        {"", nil, "label"},
		"long label":      {strings.Repeat("l", MaxLabel+1), nil, "label of 33 bytes"},
		"long name":       {"l", []File{{strings.Repeat("n", MaxName+1), nil}}, "more than 103 characters"},
		"empty name":      {"l", []File{{"a//b", nil}}, `"" is no name`},
		"above":           {"l", []File{{"../b", nil}}, `".." is no name`},
		"zero byte":       {"l", []File{{"a\x00b", nil}}, "no text"},
		"twice":           {"l", []File{{"a", nil}, {"a", nil}}, "listed twice"},
		"file and folder": {"l", []File{{"a", nil}, {"a/b", nil}}, `"a" is listed twice`},
		"folder and file": {"l", []File{{"a/b", nil}, {"a", nil}}, `"a" is listed twice`},
		"too deep":        {"l", []File{{"1/2/3/4/5/6/7/8", nil}}, "nested"},
		"too many":        {"l", many, "at most 1024"},
		"too large":       {"l", []File{{"a", make([]byte, MaxSize+1)}}, "at most"},
	} {
		if _, err := Image(test.label, test.files); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", name, err, test.want)
		}
	}
}

// TestSameBytes: a restored VM must find the disk that it had, whatever order a folder was
// read in.
func TestSameBytes(t *testing.T) {
	one, err := Image("l", []File{{"aaaaaaaaaa1", nil}, {"aaaaaaaaaa2", []byte("2")}, {"b/c", nil}})
	if err != nil {
		t.Fatal(err)
	}
	other, err := Image("l", []File{{"b/c", nil}, {"aaaaaaaaaa2", []byte("2")}, {"aaaaaaaaaa1", nil}})
	if err != nil || !bytes.Equal(one, other) {
		t.Errorf("the same files in another order give another image, %v", err)
	}
}

// TestPathTable: readers other than Linux find folders by it.
func TestPathTable(t *testing.T) {
	out, err := Image("l", []File{{"b/y/f", nil}, {"a/x/f", nil}})
	if err != nil {
		t.Fatal(err)
	}
	d := out[sectorPrimary*SectorSize:]
	size := int(binary.LittleEndian.Uint32(d[132:]))
	little := out[int(binary.LittleEndian.Uint32(d[140:]))*SectorSize:][:size]
	big := out[int(binary.BigEndian.Uint32(d[148:]))*SectorSize:][:size]
	var got []string
	for len(little) > 0 {
		n := int(little[0])
		parent := binary.LittleEndian.Uint16(little[6:])
		if sector := binary.LittleEndian.Uint32(little[2:]); sector != binary.BigEndian.Uint32(big[2:]) || sector < sectorTables {
			t.Errorf("%q is at %d", little[8:8+n], sector)
		}
		got = append(got, fmt.Sprintf("%q<%d", little[8:8+n], parent))
		little, big = little[8+(n+1)&^1:], big[8+(n+1)&^1:]
	}
	if want := `["\x00"<1 "A"<1 "B"<1 "X"<2 "Y"<3]`; fmt.Sprint(got) != want {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestReadByAnother has a reader find its way by path tables and records. It finds none in
// deeper folders, by an error of its own.
func TestReadByAnother(t *testing.T) {
	files := []File{{"latest/user_data", []byte("#cloud-config\n")}, {"latest/empty", nil}, {"Mixed Case.txt", []byte("x")}}
	image, err := Image("config-2", files)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "image.iso"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(image); err != nil {
		t.Fatal(err)
	}
	fs, err := iso9660.Read(file.New(f, true), int64(len(image)), 0, SectorSize)
	if err != nil {
		t.Fatal(err)
	}
	if label := strings.TrimSpace(fs.Label()); label != "config-2" {
		t.Errorf("label %q", label)
	}
	for _, want := range files {
		if got, err := fs.ReadFile(want.Path); err != nil || !bytes.Equal(got, want.Content) {
			t.Errorf("%s: %q, %v", want.Path, got, err)
		}
	}
}
