package main

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/vmlet/vmlet/internal/ociimage"
)

// Where vmlet looks for cloud-hypervisor and its firmware first.
const (
	cloudHypervisorPath = programsDir + "/cloud-hypervisor"
	firmwarePath        = "usr/local/share/cloud-hypervisor/CLOUDHV.fd"
)

// cloudHypervisor returns the entries of the layer with a cloud-hypervisor of the
// administrator's own: the program, its firmware, if there is one, and those libraries
// of Debian's packages that it needs and the layer below hasn't.
func cloudHypervisor(o options, a architecture, below []ociimage.Entry) ([]ociimage.Entry, error) {
	root, packages := o.unpacked()
	p := newPicker(root, a.triplet)
	if err := p.bring(o.cloudHypervisor, cloudHypervisorPath, a.machine); err != nil {
		return nil, fmt.Errorf("%s: %w", o.cloudHypervisor, err)
	}
	if err := p.packages(packages); err != nil {
		return nil, err
	}
	if o.firmware != "" {
		content, err := os.ReadFile(o.firmware)
		if err != nil {
			return nil, err
		}
		p.put(ociimage.Entry{Path: firmwarePath, Mode: 0o644, Content: content})
	}
	have := make(map[string]bool)
	for _, e := range below {
		have[e.Path] = true
	}
	return slices.DeleteFunc(p.all(), func(e ociimage.Entry) bool { return have[e.Path] }), nil
}

// bring picks a program that none of the packages has, by another name, with the
// libraries that it needs. It has no time: the same program makes the same image.
func (p *picker) bring(file, name string, machine elf.Machine) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return err
	}
	if f.Machine != machine {
		return fmt.Errorf("it is for %v, and the image for %v", f.Machine, machine)
	}
	p.put(ociimage.Entry{Path: name, Mode: 0o755, Content: content})
	err = p.needs(f)
	if err == nil {
		err = p.libraries()
	}
	if err == nil {
		err = p.versions(f)
	}
	if err != nil {
		return fmt.Errorf("%w: take a build of it that is linked statically, or made on the image's Debian", err)
	}
	return nil
}

// versions sees that the libraries have what the program was linked against: one that
// was built on a newer system would not start.
func (p *picker) versions(f *elf.File) error {
	needs, err := f.DynamicVersionNeeds()
	if errors.Is(err, elf.ErrNoSymbols) { // it is linked statically
		return nil
	}
	if err != nil {
		return err
	}
	for _, library := range needs {
		path, err := p.find(library.Name)
		if err != nil {
			return err
		}
		has, err := p.defined(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, version := range library.Needs {
			if weak := version.Flags&elf.VER_FLG_WEAK != 0; !weak && !has[version.Dep] {
				return fmt.Errorf("it needs %s of %s, which the image's is too old for", version.Dep, library.Name)
			}
		}
	}
	return nil
}

// defined are the versions of symbols that a library has.
func (p *picker) defined(path string) (map[string]bool, error) {
	has := make(map[string]bool)
	real, err := p.resolve(path, nil)
	if err != nil {
		return nil, err
	}
	return has, p.opened(real, func(f *elf.File) error {
		versions, err := f.DynamicVersions()
		for _, v := range versions {
			has[v.Name] = true
		}
		return err
	})
}
