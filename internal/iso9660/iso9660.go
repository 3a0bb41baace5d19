// Package iso9660 makes small read-only images of files, as guests mount them: ISO 9660
// (ECMA-119) with Joliet, whose names are Unicode and keep their case. It holds the whole
// image in memory, and the same input gives the same bytes: a VM that is restored finds the
// disk that it had. Start with Image.
package iso9660

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// SectorSize is an image's unit, in bytes: every image has whole sectors.
const SectorSize = 2048

// Bounds of what an image can hold.
const (
	// MaxName is how long the name of a file or folder may be, in UTF-16 units: a folder's
	// record, whose length is one byte, has room for 110 (ECMA-119, 9.1); Windows reads 103.
	MaxName = 103
	// MaxLabel is how long a volume's label may be, in bytes (ECMA-119, 8.4.7).
	MaxLabel = 32
	// MaxDepth is how many folders may be nested, with the root (ECMA-119, 6.8.2.1).
	MaxDepth = 8
	// MaxFiles bounds the files of an image, and so its folders.
	MaxFiles = 1024
	// MaxSize bounds the content of all files, in bytes.
	MaxSize = 16 << 20
)

// ErrLongName is the fault of a file whose name is longer than MaxName.
var ErrLongName = fmt.Errorf("a name of more than %d characters: an ISO image can't hold it", MaxName)

// File is one file of an image.
type File struct {
	// Path is relative, with slashes: "openstack/latest/user_data".
	Path    string
	Content []byte
}

// Image returns an image that has the label and the files. Folders are made as paths name
// them. The error says which name or which bound is the fault.
func Image(label string, files []File) ([]byte, error) {
	root, err := tree(label, files)
	if err != nil {
		return nil, err
	}
	return lay(label, root), nil
}

// node is a file or a folder.
type node struct {
	name    string // in Joliet; empty: the root
	short   string // in the primary volume, unique in its folder
	content []byte // of a file
	folder  bool
	entries []*node
	parent  *node

	sector int        // of a file's content
	places [2]placing // of a folder, in each volume
}

// placing is where a folder's records are in one volume.
type placing struct {
	sector, size int
	number       int // in the path table, from 1
}

func tree(label string, files []File) (*node, error) {
	if label == "" || len(label) > MaxLabel || !utf8.ValidString(label) {
		return nil, fmt.Errorf("a volume label of %d bytes: an ISO image's label is text of 1 to %d", len(label), MaxLabel)
	}
	if len(files) > MaxFiles {
		return nil, fmt.Errorf("%d files: an ISO image has at most %d", len(files), MaxFiles)
	}
	root, size := &node{folder: true}, 0
	for _, f := range files {
		if size += len(f.Content); size > MaxSize {
			return nil, fmt.Errorf("more than %d bytes of files: an ISO image that vmlet makes has at most so many", MaxSize)
		}
		if err := root.add(f); err != nil {
			return nil, err
		}
	}
	root.finish()
	return root, nil
}

// add puts a file below the root, with the folders on the way.
func (root *node) add(f File) error {
	names := strings.Split(f.Path, "/")
	if len(names) >= MaxDepth {
		return fmt.Errorf("file %.200q: folders are nested more than %d deep: an ISO image can't hold it", f.Path, MaxDepth)
	}
	at := root
	for i, name := range names {
		if err := checkName(name); err != nil {
			return fmt.Errorf("file %.200q: %w", f.Path, err)
		}
		last := i == len(names)-1
		next := at.find(name)
		switch {
		case next == nil:
			next = &node{name: name, folder: !last, parent: at}
			at.entries = append(at.entries, next)
		case last || !next.folder:
			return fmt.Errorf("file %.200q: %q is listed twice", f.Path, path.Join(names[:i+1]...))
		}
		at = next
	}
	at.content = f.Content
	return nil
}

func (n *node) find(name string) *node {
	i := slices.IndexFunc(n.entries, func(e *node) bool { return e.name == name })
	if i < 0 {
		return nil
	}
	return n.entries[i]
}

func checkName(name string) error {
	switch {
	case name == "" || name == "." || name == "..":
		return fmt.Errorf("%q is no name of a file", name)
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return fmt.Errorf("%q is no text", name)
	case len(utf16.Encode([]rune(name))) > MaxName:
		return ErrLongName
	}
	return nil
}

// finish gives entries their short names, the same whatever order they came in.
func (n *node) finish() {
	slices.SortFunc(n.entries, func(a, b *node) int { return strings.Compare(a.name, b.name) })
	taken := make(map[string]bool)
	for _, e := range n.entries {
		e.short = shorten(e.name, e.folder, taken)
		taken[e.short] = true
		e.finish()
	}
}

// shorten makes a name that every reader takes: 8.3, in capitals (ECMA-119, 7.5 and 10.1).
func shorten(name string, folder bool, taken map[string]bool) string {
	const base, extension = 8, 3
	stem, ext := plain(name), ""
	if dot := strings.LastIndex(name, "."); dot > 0 && !folder {
		stem, ext = plain(name[:dot]), plain(name[dot+1:])
	}
	stem, ext = stem[:min(len(stem), base)], ext[:min(len(ext), extension)]
	whole := func(stem string) string {
		if folder {
			return stem
		}
		return stem + "." + ext + ";1"
	}
	for n := 1; ; n++ {
		if short := whole(stem); !taken[short] {
			return short
		}
		digits := fmt.Sprint(n)
		stem = stem[:min(len(stem), base-len(digits))] + digits
	}
}

// plain has letters and digits in capitals, and an underscore for all else.
func plain(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, name)
}

// wide is a text in UCS-2, big-endian, as Joliet has it.
func wide(text string) string {
	units := utf16.Encode([]rune(text))
	out := make([]byte, 0, 2*len(units))
	for _, u := range units {
		out = append(out, byte(u>>8), byte(u))
	}
	return string(out)
}
