package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vmlet/vmlet/internal/ociimage"
)

// maxLinks is how many symbolic links may be on the way to a file, as the
// kernel has it (MAXSYMLINKS).
const maxLinks = 40

// picker takes files out of an unpacked root filesystem, each with the folders
// and links on the way to it.
type picker struct {
	root    string
	search  []string
	entries map[string]ociimage.Entry
	// programs are those whose libraries have not been looked for yet.
	programs []string
}

func newPicker(root, triplet string) *picker {
	return &picker{
		root: root, entries: make(map[string]ociimage.Entry),
		// ld.so's own folders, in its order.
		search: []string{"lib/" + triplet, "usr/lib/" + triplet, "lib", "usr/lib"},
	}
}

func (p *picker) path(name string) string { return filepath.Join(p.root, filepath.FromSlash(name)) }

func (p *picker) put(e ociimage.Entry) {
	if dir := path.Dir(e.Path); dir != "." {
		if _, there := p.entries[dir]; !there {
			p.put(ociimage.Entry{Path: dir, Mode: fs.ModeDir | 0o755})
		}
	}
	p.entries[e.Path] = e
}

// all are what was picked, in no order.
func (p *picker) all() []ociimage.Entry { return slices.Collect(maps.Values(p.entries)) }

// files are the paths of all but folders.
func (p *picker) files() map[string]bool {
	files := make(map[string]bool)
	for name, e := range p.entries {
		files[name] = !e.Mode.IsDir()
	}
	return files
}

// add picks a file, or all files of a folder.
func (p *picker) add(name string) error {
	real, err := p.resolve(name, p.put)
	if err != nil {
		return err
	}
	if _, there := p.entries[real]; there {
		return nil
	}
	info, err := os.Lstat(p.path(real))
	if err != nil {
		return err
	}
	if info.IsDir() {
		return p.addAll(real)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a file", p.path(real))
	}
	content, err := os.ReadFile(p.path(real))
	if err != nil {
		return err
	}
	p.put(ociimage.Entry{Path: real, Mode: info.Mode().Perm(), ModTime: info.ModTime(), Content: content})
	if strings.HasPrefix(string(content[:min(4, len(content))]), elf.ELFMAG) {
		p.programs = append(p.programs, real)
	}
	return nil
}

func (p *picker) addAll(folder string) error {
	files, err := os.ReadDir(p.path(folder))
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := p.add(path.Join(folder, f.Name())); err != nil {
			return err
		}
	}
	return nil
}

// resolve follows symbolic links within the root, and tells found of each.
func (p *picker) resolve(name string, found func(ociimage.Entry)) (string, error) {
	done, links := "", 0
	for rest := path.Clean(name); rest != ""; {
		part, after, _ := strings.Cut(rest, "/")
		next := path.Join(done, part)
		info, err := os.Lstat(p.path(next))
		if err != nil {
			return "", err
		}
		rest = after
		if info.Mode().Type() != fs.ModeSymlink {
			done = next
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("%s: too many symbolic links", p.path(name))
		}
		target, err := os.Readlink(p.path(next))
		if err != nil {
			return "", err
		}
		if found != nil {
			found(ociimage.Entry{Path: next, Mode: fs.ModeSymlink | 0o777, ModTime: info.ModTime(), Target: target})
		}
		if !path.IsAbs(target) {
			target = path.Join("/", done, target)
		}
		// As seen from the new root, nothing is above it.
		done, rest = "", strings.TrimPrefix(path.Join(path.Clean(target), after), "/")
	}
	return done, nil
}

// libraries adds what programs and libraries need to be loaded, and what these
// need in turn.
func (p *picker) libraries() error {
	for len(p.programs) > 0 {
		program := p.programs[0]
		p.programs = p.programs[1:]
		if err := p.opened(program, p.needs); err != nil {
			return fmt.Errorf("%s: %w", program, err)
		}
	}
	return nil
}

// opened does something with a program or a library of the root.
func (p *picker) opened(program string, do func(*elf.File) error) error {
	f, err := elf.Open(p.path(program))
	if err != nil {
		return err
	}
	defer f.Close()
	return do(f)
}

func (p *picker) needs(f *elf.File) error {
	if loader, err := interpreter(f); err != nil || loader != "" {
		if err = errors.Join(err, p.add(strings.TrimPrefix(loader, "/"))); err != nil {
			return err
		}
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		return err
	}
	for _, library := range libraries {
		if err := p.library(library); err != nil {
			return err
		}
	}
	return nil
}

func (p *picker) library(name string) error {
	path, err := p.find(name)
	if err != nil {
		return err
	}
	return p.add(path)
}

// find returns where a library is.
func (p *picker) find(library string) (string, error) {
	for _, dir := range p.search {
		name := path.Join(dir, library)
		if _, err := p.resolve(name, nil); !errors.Is(err, fs.ErrNotExist) {
			return name, err
		}
	}
	return "", fmt.Errorf("needs %s, which none of the packages has", library)
}

// interpreter is the path of the program's loader; libraries have none.
func interpreter(f *elf.File) (string, error) {
	for _, segment := range f.Progs {
		if segment.Type != elf.PT_INTERP {
			continue
		}
		text := make([]byte, min(segment.Filesz, 4096))
		if _, err := segment.ReadAt(text, 0); err != nil {
			return "", err
		}
		return strings.TrimRight(string(text), "\x00"), nil
	}
	return "", nil
}
