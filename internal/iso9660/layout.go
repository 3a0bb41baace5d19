package iso9660

import (
	"encoding/binary"
	"slices"
	"strings"
)

// The first sectors of an image: 16 that belong to nobody, then its descriptors (ECMA-119, 6.2.1).
const (
	sectorPrimary = 16 + iota
	sectorJoliet
	sectorTerminator
	sectorTables
)

// The two volumes that an image has over the same files.
const (
	primary = iota
	joliet
	volumes
)

// Types of descriptors (ECMA-119, 8.1.1).
const (
	typePrimary       = 1
	typeSupplementary = 2
	typeTerminator    = 255
)

// image is one that is being laid out.
type image struct {
	root    *node
	folders [volumes][]*node // in the order of path tables: by depth, then as the folders above
	tables  [volumes]table
	next    int // the first sector that is free
	out     []byte
}

// table is where a path table is, in both orders of bytes.
type table struct {
	little, big int // sectors
	size        int // bytes
}

// lay places everything, then writes it.
func lay(label string, root *node) []byte {
	i := &image{root: root, next: sectorTables}
	for v := range volumes {
		i.folders[v] = foldersOf(v, root)
		size := len(i.pathTable(v, binary.LittleEndian))
		i.tables[v] = table{size: size, little: i.take(size), big: i.take(size)}
	}
	for v := range volumes {
		for n, f := range i.folders[v] {
			size := len(i.records(v, f))
			f.places[v] = placing{sector: i.take(size), size: size, number: n + 1}
		}
	}
	for _, f := range i.files() {
		f.sector = i.take(len(f.content))
	}
	i.next += i.next % 2 // whole 4 KiB, which direct I/O wants where disks have blocks of that size
	i.out = make([]byte, i.next*SectorSize)
	i.write(label)
	return i.out
}

// take returns the sector where so many bytes go.
func (i *image) take(size int) (sector int) {
	sector = i.next
	i.next += (size + SectorSize - 1) / SectorSize
	return sector
}

// foldersOf lists all folders, each after those of lesser depth.
func foldersOf(volume int, root *node) []*node {
	all := []*node{root}
	for n := 0; n < len(all); n++ {
		for _, e := range inOrder(volume, all[n].entries) {
			if e.folder {
				all = append(all, e)
			}
		}
	}
	return all
}

func (i *image) files() (all []*node) {
	for _, f := range i.folders[primary] {
		for _, e := range f.entries {
			if !e.folder {
				all = append(all, e)
			}
		}
	}
	return all
}

func (i *image) write(label string) {
	i.descriptor(primary, sectorPrimary, typePrimary, label)
	i.descriptor(joliet, sectorJoliet, typeSupplementary, label)
	copy(i.at(sectorTerminator), "\xffCD001\x01")
	for v := range volumes {
		copy(i.at(i.tables[v].little), i.pathTable(v, binary.LittleEndian))
		copy(i.at(i.tables[v].big), i.pathTable(v, binary.BigEndian))
		for _, f := range i.folders[v] {
			copy(i.at(f.places[v].sector), i.records(v, f))
		}
	}
	for _, f := range i.files() {
		copy(i.at(f.sector), f.content)
	}
}

func (i *image) at(sector int) []byte { return i.out[sector*SectorSize:] }

// descriptor writes a volume descriptor (ECMA-119, 8.4 and 8.5; Joliet, section 2).
func (i *image) descriptor(volume, sector int, kind byte, label string) {
	d := i.at(sector)[:SectorSize]
	encode, space := identity, " "
	if volume == joliet {
		encode, space = wide, "\x00 "
	}
	text := func(from, to int, s string) {
		s = encode(s)
		copy(d[from:to], s[:min(len(s), to-from)])
		for at := from + min(len(s), to-from); at+len(space) <= to; at += len(space) {
			copy(d[at:], space)
		}
	}
	d[0] = kind
	copy(d[1:], "CD001\x01")
	text(8, 40, "")     // system
	text(40, 72, label) // volume
	both32(d[80:], i.next)
	if volume == joliet {
		copy(d[88:], "%/E") // UCS-2, level 3
	}
	both16(d[120:], 1) // volumes in the set
	both16(d[124:], 1) // which of them this is
	both16(d[128:], SectorSize)
	both32(d[132:], i.tables[volume].size)
	binary.LittleEndian.PutUint32(d[140:], uint32(i.tables[volume].little))
	binary.BigEndian.PutUint32(d[148:], uint32(i.tables[volume].big))
	copy(d[156:], i.record(volume, i.root, "\x00"))
	text(190, 702, "") // volume set, publisher, preparer, application
	text(702, 813, "") // names of three files: copyright, abstract, bibliography
	for at := 813; at < 881; at += 17 {
		// Made, changed, expires, effective. All is dated 1980: the same files are to give
		// the same bytes, and who reads them doesn't look at dates.
		copy(d[at:], "1980010100000000\x00")
	}
	d[881] = 1 // version of this structure
}

// records are those of a folder: itself, the one above, and what is in it. None crosses the
// end of a sector, and whole sectors are given (ECMA-119, 6.8.1).
func (i *image) records(volume int, folder *node) []byte {
	above := folder.parent
	if above == nil {
		above = folder
	}
	all := [][]byte{i.record(volume, folder, "\x00"), i.record(volume, above, "\x01")}
	for _, e := range inOrder(volume, folder.entries) {
		all = append(all, i.record(volume, e, identifier(volume, e)))
	}
	var out []byte
	for _, r := range all {
		if room := SectorSize - len(out)%SectorSize; room < len(r) {
			out = append(out, make([]byte, room)...)
		}
		out = append(out, r...)
	}
	return append(out, make([]byte, -len(out)&(SectorSize-1))...)
}

// inOrder has entries as a volume sorts them (ECMA-119, 9.3).
func inOrder(volume int, entries []*node) []*node {
	return slices.SortedFunc(slices.Values(entries), func(a, b *node) int {
		return strings.Compare(identifier(volume, a), identifier(volume, b))
	})
}

func identifier(volume int, n *node) string {
	if volume == joliet {
		return wide(n.name)
	}
	return n.short
}

// record is a folder's entry (ECMA-119, 9.1).
func (i *image) record(volume int, n *node, name string) []byte {
	const head, flagFolder = 33, 2
	r := make([]byte, (head+len(name)+1)&^1)
	r[0] = byte(len(r))
	sector, size := n.sector, len(n.content)
	if n.folder {
		sector, size = n.places[volume].sector, n.places[volume].size
		r[25] = flagFolder
	}
	both32(r[2:], sector)
	both32(r[10:], size)
	copy(r[18:], []byte{80, 1, 1}) // 1980-01-01, see descriptor
	both16(r[28:], 1)
	r[32] = byte(len(name))
	copy(r[head:], name)
	return r
}

// pathTable lists all folders (ECMA-119, 9.4).
func (i *image) pathTable(volume int, order binary.AppendByteOrder) []byte {
	var out []byte
	for _, f := range i.folders[volume] {
		name, above := "\x00", 1
		if f.parent != nil {
			name, above = identifier(volume, f), f.parent.places[volume].number
		}
		out = append(out, byte(len(name)), 0)
		out = order.AppendUint32(out, uint32(f.places[volume].sector))
		out = order.AppendUint16(out, uint16(above))
		out = append(out, name...)
		if len(name)%2 != 0 {
			out = append(out, 0)
		}
	}
	return out
}

func identity(s string) string { return s }

// both16 and both32 write a number in both orders of bytes (ECMA-119, 7.2.3 and 7.3.3).
func both16(b []byte, n int) {
	binary.LittleEndian.PutUint16(b, uint16(n))
	binary.BigEndian.PutUint16(b[2:], uint16(n))
}

func both32(b []byte, n int) {
	binary.LittleEndian.PutUint32(b, uint32(n))
	binary.BigEndian.PutUint32(b[4:], uint32(n))
}
