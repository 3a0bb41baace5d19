// Command image makes vmlet's container images, as tars. The node's is of Debian's packages
// as deploy/image/packages unpacks them, of vmlet's programs and, if the administrator has
// one, of a cloud-hypervisor; the cluster's has its programs alone. `make image` runs it.
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

// programsDir is where the programs look for one another, and PATH has it.
const programsDir = "usr/local/bin"

type options struct {
	packages, programs, reference, version, arch, out string
	// cloudHypervisor and firmware are files of the administrator's own; empty: none.
	cloudHypervisor, firmware string
	// drivers are programs of the driver protocol.
	drivers []string
	// profiles is a folder for virtualisation profiles of the image; empty: none are written.
	profiles string
	// cluster: the image of the programs that a cluster has beside its nodes'.
	cluster bool
}

// unpacked are the folders with the packages' files, and with what they are.
func (o options) unpacked() (root, packages string) {
	return filepath.Join(o.packages, "root"), filepath.Join(o.packages, "packages")
}

func main() {
	var o options
	flag.StringVar(&o.packages, "packages", "", "folder with Debian's packages, unpacked: root, and a list and a description for each in packages")
	flag.StringVar(&o.programs, "programs", "bin", "folder with vmlet's programs")
	flag.BoolVar(&o.cluster, "cluster", false, "the image of vmlet-controller, vmlet-api and vmlet-autopilot, instead of the node's")
	flag.StringVar(&o.reference, "reference", "", "the image's name, with a tag")
	flag.StringVar(&o.version, "version", "", "vmlet's version, for the image's labels")
	flag.StringVar(&o.arch, "arch", "amd64", "the architecture, as Go calls it")
	flag.StringVar(&o.out, "o", "", "the tar to write")
	flag.StringVar(&o.cloudHypervisor, "cloud-hypervisor", "", "cloud-hypervisor's program, if the image is to have it")
	flag.StringVar(&o.firmware, "cloud-hypervisor-firmware", "", "its firmware, with which it boots VMs from their disks")
	flag.Func("driver", "a static `PROGRAM` that speaks the driver protocol, named after its VMM; may be repeated", func(file string) error {
		o.drivers = append(o.drivers, file)
		return nil
	})
	flag.StringVar(&o.profiles, "profiles", "", "`FOLDER` for a virtualisation profile of the image for each VMM that it has beside QEMU")
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
	layers, entrypoint := layersOf, "vmlet"
	if o.cluster {
		layers, entrypoint = clusterLayers, "vmlet-controller"
	}
	all, err := layers(o, a)
	if err != nil {
		return "", err
	}
	if err := writeProfiles(o); err != nil {
		return "", err
	}
	return ociimage.Write(o.out, ociimage.Image{
		Reference: o.reference, Architecture: o.arch, Layers: all,
		// No user: a pod says which.
		Config: v1.Config{
			Entrypoint: []string{"/" + programsDir + "/" + entrypoint},
			Env:        []string{"PATH=/usr/local/bin:/usr/bin"},
			Labels: map[string]string{
				"org.opencontainers.image.title":   "vmlet",
				"org.opencontainers.image.version": o.version,
			},
		},
	})
}

// layersOf: vmlet is above QEMU, so that a new vmlet is a small layer, and what is the
// administrator's own between them.
func layersOf(o options, a architecture) ([]v1.Layer, error) {
	root, packages := o.unpacked()
	below, err := distribution(root, packages, a)
	if err != nil {
		return nil, err
	}
	all := [][]ociimage.Entry{below}
	switch {
	case o.cloudHypervisor != "":
		own, err := cloudHypervisor(o, a, below)
		if err != nil {
			return nil, err
		}
		all = append(all, own)
	case o.firmware != "":
		return nil, fmt.Errorf("%s is cloud-hypervisor's firmware, and the image is to have no cloud-hypervisor", o.firmware)
	}
	if len(o.drivers) > 0 {
		drivers, err := driverEntries(o.drivers)
		if err != nil {
			return nil, err
		}
		all = append(all, drivers)
	}
	programs, err := programEntries(o.programs, "vmlet", "vmlet-agent", "vmlet-shim", "vmlet-importer")
	if err != nil {
		return nil, err
	}
	return asLayers(append(all, programs))
}

func clusterLayers(o options, _ architecture) ([]v1.Layer, error) {
	programs, err := programEntries(o.programs, "vmlet-controller", "vmlet-api", "vmlet-autopilot")
	if err != nil {
		return nil, err
	}
	return asLayers([][]ociimage.Entry{programs})
}

func asLayers(all [][]ociimage.Entry) ([]v1.Layer, error) {
	var layers []v1.Layer
	for _, entries := range all {
		layer, err := ociimage.Layer(entries)
		if err != nil {
			return nil, err
		}
		layers = append(layers, layer)
	}
	return layers, nil
}

func programEntries(folder string, names ...string) ([]ociimage.Entry, error) {
	var entries []ociimage.Entry
	for _, name := range names {
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
