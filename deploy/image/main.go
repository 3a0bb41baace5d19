// Command image makes vmlet's container image, a tar, of Debian's packages as
// test/setup image unpacks them and of vmlet's programs. `make image` runs it.
package main

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/vmlet/vmlet/internal/ociimage"
)

// programsDir is where vmlet looks for vmlet-shim, and PATH has it.
const programsDir = "usr/local/bin"

type options struct {
	packages, programs, reference, version, arch, out string
}

func main() {
	var o options
	flag.StringVar(&o.packages, "packages", "", "folder with Debian's packages, unpacked: root, and a list and a description for each in packages")
	flag.StringVar(&o.programs, "programs", "bin", "folder with vmlet and vmlet-shim")
	flag.StringVar(&o.reference, "reference", "", "the image's name, with a tag")
	flag.StringVar(&o.version, "version", "", "vmlet's version, for the image's labels")
	flag.StringVar(&o.arch, "arch", "amd64", "the architecture, as Go calls it")
	flag.StringVar(&o.out, "o", "", "the tar to write")
	flag.Parse()
	digest, err := run(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
	fmt.Printf("%s %s\n", o.reference, digest)
}

func run(o options) (string, error) {
	a, err := architectureOf(o.arch)
	if err != nil {
		return "", err
	}
	entries, err := distribution(filepath.Join(o.packages, "root"), filepath.Join(o.packages, "packages"), a)
	if err != nil {
		return "", err
	}
	// QEMU below, vmlet above: a new vmlet is a small layer.
	below, err := ociimage.Layer(entries)
	if err != nil {
		return "", err
	}
	programs, err := programEntries(o.programs)
	if err != nil {
		return "", err
	}
	above, err := ociimage.Layer(programs)
	if err != nil {
		return "", err
	}
	return ociimage.Write(o.out, ociimage.Image{
		Reference: o.reference, Architecture: o.arch, Layers: []v1.Layer{below, above},
		// No user: a pod says which.
		Config: v1.Config{
			Entrypoint: []string{"/" + programsDir + "/vmlet"},
			Env:        []string{"PATH=/usr/local/bin:/usr/bin"},
			Labels: map[string]string{
				"org.opencontainers.image.title":   "vmlet",
				"org.opencontainers.image.version": o.version,
			},
		},
	})
}

func programEntries(folder string) ([]ociimage.Entry, error) {
	var entries []ociimage.Entry
	for _, name := range []string{"vmlet", "vmlet-shim"} {
		content, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return nil, err
		}
		entries = append(entries, ociimage.Entry{Path: programsDir + "/" + name, Mode: 0o755, Content: content})
	}
	for _, dir := range []string{"usr", "usr/local", programsDir} {
		entries = append(entries, ociimage.Entry{Path: dir, Mode: fs.ModeDir | 0o755})
	}
	return entries, nil
}
