package cloudinit

import (
	"bytes"
	"encoding/binary"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	specv1 "github.com/vmlet/vmlet/proto/vmlet/spec/v1"
	"go.yaml.in/yaml/v3"
)

const testID = "5d2f0c2e-8f6b-4f0e-9d3a-6a4b7f1c0e11"

func seedOf(t *testing.T, c *specv1.CloudInit) []byte {
	t.Helper()
	seed, err := Seed(testID, &specv1.VirtualMachineSpec{Name: "web-1", CloudInit: c})
	if err != nil {
		t.Fatal(err)
	}
	return seed
}

func TestSeed(t *testing.T) {
	long := strings.Repeat("0123456789\n", 20000)
	for name, c := range map[string]struct {
		in   *specv1.CloudInit
		want map[string]string
	}{
		"all": {
			&specv1.CloudInit{UserData: "#cloud-config\n", MetaData: "instance-id: x\n", NetworkConfig: "version: 2\n"},
			map[string]string{"user-data": "#cloud-config\n", "meta-data": "instance-id: x\n", "network-config": "version: 2\n"},
		},
		"long": {
			&specv1.CloudInit{UserData: long, MetaData: long[:2048], NetworkConfig: "é"},
			map[string]string{"user-data": long, "meta-data": long[:2048], "network-config": "é"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			image := seedOf(t, c.in)
			if len(image)%sectorSize != 0 {
				t.Errorf("%d bytes are not whole sectors", len(image))
			}
			label, files := read(t, image)
			if label != VolumeLabel || !maps.Equal(files, c.want) {
				t.Errorf("volume %q has %.200q, want %.200q", label, files, c.want)
			}
		})
	}
}

func TestDefaultMetaData(t *testing.T) {
	_, files := read(t, seedOf(t, &specv1.CloudInit{}))
	var meta map[string]string
	if err := yaml.Unmarshal([]byte(files["meta-data"]), &meta); err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"instance-id": testID, "local-hostname": "web-1"}; !maps.Equal(meta, want) {
		t.Errorf("meta-data %v, want %v", meta, want)
	}
	if text, there := files["user-data"]; !there || text != "#cloud-config\n" {
		t.Errorf("user-data %q, there: %v; want it there, and to say nothing", text, there)
	}
	if _, there := files["network-config"]; there {
		t.Error("a network-config that nobody gave")
	}
}

// TestSameBytes: a restored VM must find the disk that it had.
func TestSameBytes(t *testing.T) {
	c := &specv1.CloudInit{UserData: "a", NetworkConfig: "b"}
	first := seedOf(t, c)
	// The library dates volumes to the hundredth of a second, and the inodes of
	// its folder change from one call to the next.
	for range 20 {
		if again := seedOf(t, c); !bytes.Equal(again, first) {
			t.Fatal("the same input gives other bytes")
		}
	}
	if other := seedOf(t, &specv1.CloudInit{UserData: "c"}); bytes.Equal(other, first) {
		t.Fatal("other input gives the same bytes")
	}
}

func TestNothingIsLeft(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	seedOf(t, &specv1.CloudInit{UserData: "secret"})
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if err := os.Setenv("TMPDIR", filepath.Join(dir, "missing")); err != nil {
		t.Fatal(err)
	}
	if _, err := Seed(testID, &specv1.VirtualMachineSpec{CloudInit: &specv1.CloudInit{}}); err == nil {
		t.Error("a seed without a folder to make it in")
	}
}

func TestNoCloudInit(t *testing.T) {
	if seed, err := Seed(testID, &specv1.VirtualMachineSpec{}); seed != nil || err != nil {
		t.Errorf("a seed of %d bytes, %v; want none", len(seed), err)
	}
}

// read is a reader of its own, as Linux reads such a volume: the label from the
// primary descriptor, names from the Joliet one (ECMA-119; Joliet specification,
// section 3).
func read(t *testing.T, image []byte) (label string, files map[string]string) {
	t.Helper()
	files = make(map[string]string)
	for at := systemArea; ; at += sectorSize {
		d := image[at : at+sectorSize]
		if string(d[1:6]) != "CD001" {
			t.Fatalf("sector %d is no volume descriptor", at/sectorSize)
		}
		switch d[0] {
		case 1:
			label = strings.TrimRight(string(d[40:72]), " ")
			if sectors := int(binary.LittleEndian.Uint32(d[80:])); sectors*sectorSize > len(image) {
				t.Errorf("the volume claims %d sectors and the image has %d", sectors, len(image)/sectorSize)
			}
		case 2:
			if escape := string(d[88:91]); escape != "%/E" && escape != "%/C" && escape != "%/@" {
				t.Errorf("escape sequence %q is not Joliet's", escape)
			}
			if name := string(d[40:72]); !strings.HasPrefix(name, "\x00C\x00I\x00D\x00A\x00T\x00A\x00 ") {
				t.Errorf("the Joliet label is %q", name)
			}
			root := d[156:]
			for name, content := range entries(t, extent(t, image, root), image) {
				files[name] = content
			}
		case 255:
			return label, files
		}
	}
}

func extent(t *testing.T, image, record []byte) []byte {
	t.Helper()
	from := int(binary.LittleEndian.Uint32(record[2:])) * sectorSize
	size := int(binary.LittleEndian.Uint32(record[10:]))
	if from+size > len(image) {
		t.Fatalf("extent from %d to %d of an image of %d bytes", from, from+size, len(image))
	}
	return image[from : from+size]
}

func entries(t *testing.T, folder, image []byte) map[string]string {
	t.Helper()
	out := make(map[string]string)
	for len(folder) > 0 && folder[0] != 0 {
		record := folder[:folder[0]]
		folder = folder[folder[0]:]
		name := record[33 : 33+int(record[32])]
		if len(name) == 1 { // the folder itself, and the one above
			continue
		}
		units := make([]uint16, len(name)/2)
		for i := range units {
			units[i] = binary.BigEndian.Uint16(name[2*i:])
		}
		text := strings.TrimSuffix(string(utf16.Decode(units)), ";1")
		if _, twice := out[text]; twice {
			t.Errorf("two files of the name %s", text)
		}
		out[text] = string(extent(t, image, record))
	}
	return out
}
