package sysfstest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Tree is a folder with a made-up machine's files. Its methods end the test if
// something can't be written. Paths are below Root: "sys/bus/pci", "dev/vfio".
type Tree struct {
	// Root has the folders sys, proc and dev, which the others are the paths of.
	Root, Sys, Proc, Dev string

	t testing.TB
	// made are the folders that are there.
	made map[string]bool
}

// Empty makes a tree with nothing in its three folders.
func Empty(t testing.TB, folder string) *Tree {
	t.Helper()
	tree := &Tree{Root: folder, Sys: filepath.Join(folder, "sys"), Proc: filepath.Join(folder, "proc"),
		Dev: filepath.Join(folder, "dev"), t: t, made: map[string]bool{}}
	for _, name := range []string{"sys", "proc", "dev"} {
		tree.Folder(name)
	}
	return tree
}

// File writes a file, and makes the folders that it is in. A newline is added
// to what doesn't end in one, as the kernel does.
func (t *Tree) File(path, content string) {
	t.t.Helper()
	if !strings.HasSuffix(content, "\n") {
		content += "\n"
	}
	t.Raw(path, content)
}

// Raw writes a file just as given.
func (t *Tree) Raw(path, content string) {
	t.t.Helper()
	t.Folder(filepath.Dir(path))
	if err := os.WriteFile(t.Path(path), []byte(content), 0o644); err != nil {
		t.t.Fatal(err)
	}
}

// Printf writes a file with a formatted content.
func (t *Tree) Printf(path, format string, args ...any) {
	t.t.Helper()
	t.File(path, fmt.Sprintf(format, args...))
}

// Folder makes a folder and those that it is in.
func (t *Tree) Folder(path string) {
	t.t.Helper()
	path = t.Path(path)
	if t.made[path] {
		return
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.t.Fatal(err)
	}
	t.made[path] = true
}

// Link makes a symbolic link; to is a path below Root too, and what is written is
// relative, as in sysfs. It needn't be there yet.
func (t *Tree) Link(path, to string) {
	t.t.Helper()
	t.Folder(filepath.Dir(path))
	target, err := filepath.Rel(filepath.Dir(t.Path(path)), t.Path(to))
	if err != nil {
		t.t.Fatal(err)
	}
	t.RawLink(path, target)
}

// RawLink makes a symbolic link with the target just as given.
func (t *Tree) RawLink(path, target string) {
	t.t.Helper()
	t.Folder(filepath.Dir(path))
	if err := os.Symlink(target, t.Path(path)); err != nil {
		t.t.Fatal(err)
	}
}

// Remove removes a file, or a folder with all that is in it.
func (t *Tree) Remove(path string) {
	t.t.Helper()
	if err := os.RemoveAll(t.Path(path)); err != nil {
		t.t.Fatal(err)
	}
	clear(t.made)
}

// TB is the test that the tree belongs to.
func (t *Tree) TB() testing.TB { return t.t }

// Path returns the path of something below Root.
func (t *Tree) Path(path string) string { return filepath.Join(t.Root, path) }

// List returns numbers as the kernel writes a list of them: "0-3,8".
func List(ids []int) string {
	ids = slices.Sorted(slices.Values(ids))
	var parts []string
	for i := 0; i < len(ids); {
		j := i
		for j+1 < len(ids) && ids[j+1] == ids[j]+1 {
			j++
		}
		part := strconv.Itoa(ids[i])
		if j > i {
			part += "-" + strconv.Itoa(ids[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ",")
}

// Mask returns numbers as the kernel writes a mask of them on a machine with
// that many: in hex, by 32 bits.
func Mask(ids []int, size int) string {
	for _, id := range ids {
		size = max(size, id+1)
	}
	words := make([]uint32, max(1, (size+31)/32))
	for _, id := range ids {
		words[id/32] |= 1 << (id % 32)
	}
	slices.Reverse(words)
	parts := make([]string, len(words))
	for i, word := range words {
		parts[i] = fmt.Sprintf("%08x", word)
	}
	return strings.Join(parts, ",")
}
