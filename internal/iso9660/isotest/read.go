// Package isotest reads ISO 9660 images in tests, from their Joliet volume as Linux does. It
// shares no code with what makes them.
package isotest

import (
	"encoding/binary"
	"path"
	"strings"
	"testing"
	"unicode/utf16"
)

const sector = 2048

// Read returns an image's label, and its files' contents by their paths. Where both volumes
// of the image don't have the same files, and on what breaks the format's rules, the test
// fails.
func Read(t testing.TB, image []byte) (label string, files map[string]string) {
	t.Helper()
	if len(image)%sector != 0 {
		t.Fatalf("%d bytes are not whole sectors", len(image))
	}
	var short map[string]string
	for at := 16 * sector; ; at += sector {
		d := image[at : at+sector]
		if string(d[1:6]) != "CD001" {
			t.Fatalf("sector %d is no volume descriptor", at/sector)
		}
		r := &reader{t: t, image: image, files: make(map[string]string)}
		switch d[0] {
		case 1:
			label = strings.TrimRight(string(d[40:72]), " ")
			if sectors := int(binary.LittleEndian.Uint32(d[80:])); sectors*sector != len(image) {
				t.Errorf("the volume claims %d sectors and the image has %d", sectors, len(image)/sector)
			}
			r.folder("", d[156:190])
			short = r.files
		case 2:
			if escape := string(d[88:91]); escape != "%/E" && escape != "%/C" && escape != "%/@" {
				t.Errorf("escape sequence %q is not Joliet's", escape)
			}
			if wide := strings.TrimRight(text(d[40:72]), " "); !strings.HasPrefix(label, wide) || wide == "" {
				t.Errorf("the Joliet label is %q, the other %q", wide, label)
			}
			r.wide = true
			r.folder("", d[156:190])
			files = r.files
		case 255:
			if len(short) != len(files) {
				t.Errorf("the primary volume has %d files, the Joliet volume %d", len(short), len(files))
			}
			return label, files
		}
	}
}

type reader struct {
	t     testing.TB
	image []byte
	wide  bool
	files map[string]string
}

func (r *reader) folder(name string, record []byte) {
	r.t.Helper()
	rest := r.extent(record)
	if len(rest)%sector != 0 {
		r.t.Errorf("folder %q has %d bytes, no whole sectors", name, len(rest))
	}
	before, whole := "", len(rest)
	for len(rest) > 0 {
		if rest[0] == 0 { // the rest of the sector is empty
			rest = rest[(len(rest)-1)%sector+1:]
			continue
		}
		if at := whole - len(rest); at%sector+int(rest[0]) > sector {
			r.t.Errorf("folder %q: the record at %d crosses the end of a sector", name, at)
		}
		entry := rest[:rest[0]]
		rest = rest[rest[0]:]
		raw := string(entry[33 : 33+int(entry[32])])
		if raw == "\x00" || raw == "\x01" { // the folder itself, and the one above
			continue
		}
		if raw <= before {
			r.t.Errorf("folder %q: %q comes after %q", name, raw, before)
		}
		before = raw
		if r.wide {
			raw = text([]byte(raw))
		}
		file := path.Join(name, strings.TrimSuffix(raw, ";1"))
		if entry[25]&2 != 0 {
			r.folder(file, entry)
		} else {
			r.files[file] = string(r.extent(entry))
		}
	}
}

func (r *reader) extent(record []byte) []byte {
	r.t.Helper()
	from, size := int(binary.LittleEndian.Uint32(record[2:]))*sector, int(binary.LittleEndian.Uint32(record[10:]))
	if big := int(binary.BigEndian.Uint32(record[6:])) * sector; big != from {
		r.t.Errorf("an extent starts at %d, in the other order of bytes at %d", from, big)
	}
	if from+size > len(r.image) {
		r.t.Fatalf("extent from %d to %d of an image of %d bytes", from, from+size, len(r.image))
	}
	return r.image[from : from+size]
}

// text is UCS-2, big-endian.
func text(b []byte) string {
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = binary.BigEndian.Uint16(b[2*i:])
	}
	return string(utf16.Decode(units))
}
