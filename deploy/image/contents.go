package main

import (
	"debug/elf"
	_ "embed"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/vmlet/vmlet/internal/ociimage"
)

//go:embed contents-amd64.txt
var contentsAMD64 string // never changed

// architecture is what differs by it.
type architecture struct {
	contents string
	// triplet is Debian's name of it, as in /usr/lib/TRIPLET.
	triplet string
	// machine is its programs' headers' name of it.
	machine elf.Machine
}

func architectureOf(name string) (architecture, error) {
	switch name {
	case "amd64":
		return architecture{contentsAMD64, "x86_64-linux-gnu", elf.EM_X86_64}, nil
	}
	return architecture{}, fmt.Errorf("no image is made for %s yet: want amd64", name)
}

// distribution returns the entries of the layer with QEMU: of the packages that
// are unpacked below a folder, what the contents name, the libraries that it
// needs, and for each package that anything is of its licence and description.
func distribution(root, packages string, a architecture) ([]ociimage.Entry, error) {
	p := newPicker(root, a.triplet)
	for line := range strings.Lines(a.contents) {
		if err := p.line(strings.TrimSpace(line)); err != nil {
			return nil, err
		}
	}
	if err := p.libraries(); err != nil {
		return nil, err
	}
	if err := p.packages(packages); err != nil {
		return nil, err
	}
	// QEMU's snapshots and anyone who wants a scratch file.
	for _, dir := range []string{"tmp", "var/tmp"} {
		p.put(ociimage.Entry{Path: dir, Mode: fs.ModeDir | fs.ModeSticky | 0o777})
	}
	return p.all(), nil
}

func (p *picker) line(line string) error {
	if line == "" || line[0] == '#' {
		return nil
	}
	patterns, optional := strings.CutPrefix(line, "? ")
	var names []string
	for pattern := range strings.SplitSeq(patterns, " | ") {
		var err error
		if names, err = p.matches(pattern); err != nil {
			return fmt.Errorf("contents: %s: %w", pattern, err)
		}
		if len(names) > 0 {
			break
		}
	}
	if len(names) == 0 && !optional {
		return fmt.Errorf("contents: nothing fits %s: the packages have changed", patterns)
	}
	for _, name := range names {
		if err := p.add(name); err != nil {
			return err
		}
	}
	return nil
}

// matches are the paths that fit a pattern; one without a * need not be listed.
func (p *picker) matches(pattern string) ([]string, error) {
	dir, last := path.Split(pattern)
	real, err := p.resolve(path.Clean(dir), nil)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(p.path(real))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		fits, err := path.Match(last, e.Name())
		if err != nil {
			return nil, err
		}
		if fits {
			names = append(names, dir+e.Name())
		}
	}
	return names, nil
}

// packages adds the licence and the description of each package with a file in the
// image. The folder has for each package NAME.list, its paths, and NAME.control.
// Scanners find descriptions in status.d in images that dpkg didn't make.
func (p *picker) packages(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	picked := p.files()
	for _, e := range entries {
		name, isList := strings.CutSuffix(e.Name(), ".list")
		if !isList {
			continue
		}
		list, err := os.ReadFile(path.Join(folder, e.Name()))
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(strings.Split(string(list), "\n"), func(line string) bool { return picked[strings.TrimPrefix(line, "./")] }) {
			continue
		}
		control, err := os.ReadFile(path.Join(folder, name+".control"))
		if err != nil {
			return err
		}
		p.put(ociimage.Entry{Path: "var/lib/dpkg/status.d/" + name, Mode: 0o644, Content: control})
		if err := p.add("usr/share/doc/" + name + "/copyright"); err != nil {
			return fmt.Errorf("the licence of %s: %w", name, err)
		}
	}
	return nil
}
