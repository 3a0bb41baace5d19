package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/vmlet/vmlet/internal/ociimage"
	"github.com/vmlet/vmlet/test/guest"
)

// PauseImage is in every cluster. Its program prints its arguments and waits
// to be ended.
const PauseImage = "vmlet.test/pause:1"

// BuildProgram builds a Go package's program so that it needs nothing else.
func BuildProgram(ctx context.Context, program, goPackage string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", program, goPackage)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		if why := context.Cause(ctx); why != nil {
			err = why
		}
		return fmt.Errorf("building %s: %w\n%s", goPackage, err, bytes.TrimSpace(out))
	}
	return nil
}

// VmletImage writes vmlet's own image, of the programs as they are in this
// checkout, as make image does. What Debian has in it must have been unpacked by
// deploy/image/packages before.
// more are further arguments of deploy/image.
func VmletImage(ctx context.Context, tarFile, reference string, more ...string) error {
	packages, err := guest.Cached("image-packages")
	if err != nil {
		return err
	}
	return image(ctx, tarFile, reference, []string{"vmlet", "vmlet-agent", "vmlet-shim", "vmlet-importer"}, append(more, "-packages", packages)...)
}

// ControlImage writes the image of vmlet-controller, vmlet-api and vmlet-autopilot, as they are in this checkout.
func ControlImage(ctx context.Context, tarFile, reference string) error {
	return image(ctx, tarFile, reference, []string{"vmlet-controller", "vmlet-api", "vmlet-autopilot"}, "-cluster")
}

// image builds programs and has deploy/image make an image of them.
func image(ctx context.Context, tarFile, reference string, names []string, more ...string) error {
	programs, err := os.MkdirTemp(filepath.Dir(tarFile), "programs-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(programs)
	for _, name := range names {
		if err := BuildProgram(ctx, filepath.Join(programs, name), "github.com/vmlet/vmlet/cmd/"+name); err != nil {
			return err
		}
	}
	maker := filepath.Join(programs, "image")
	if err := BuildProgram(ctx, maker, "github.com/vmlet/vmlet/deploy/image"); err != nil {
		return err
	}
	args := append([]string{"-programs", programs, "-reference", reference, "-version", "test", "-o", tarFile}, more...)
	out, err := exec.CommandContext(ctx, maker, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("making %s: %w\n%s", reference, err, bytes.TrimSpace(out))
	}
	return nil
}

// DriverImage is VmletImage with the driver of the sample stack, which is built in a module of its own.
func DriverImage(ctx context.Context, tarFile, reference string) error {
	program := filepath.Join(filepath.Dir(tarFile), "microvm")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", program, ".")
	cmd.Dir, cmd.Env = "../samplestack", append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the sample stack: %w\n%s", err, bytes.TrimSpace(out))
	}
	return VmletImage(ctx, tarFile, reference, "-driver", program)
}

// ProgramImage writes an image that has a static program and nothing else, as
// a tar for [Cluster.LoadImage]. reference is its name, with a tag.
func ProgramImage(tarFile, reference, program string) error {
	content, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	name := filepath.Base(program)
	return writeImage(tarFile, reference, []string{"/" + name}, ociimage.Entry{Path: name, Mode: 0o755, Content: content})
}

// LauncherImage writes an image that has what vmlet's pods need of an image that runs VMs, and nothing
// else: vmlet-shim and vmlet, as they are in this checkout, and a VMM's program, which has to be a static one.
func LauncherImage(ctx context.Context, tarFile, reference, vmm string) error {
	folder, err := os.MkdirTemp(filepath.Dir(tarFile), "programs-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	programs := []string{vmm}
	for _, name := range []string{"vmlet-shim", "vmlet"} {
		program := filepath.Join(folder, name)
		if err := BuildProgram(ctx, program, "github.com/vmlet/vmlet/cmd/"+name); err != nil {
			return err
		}
		programs = append(programs, program)
	}
	const inside = "usr/local/bin"
	var entries []ociimage.Entry
	for _, dir := range []string{"usr", "usr/local", inside} {
		entries = append(entries, ociimage.Entry{Path: dir, Mode: fs.ModeDir | 0o755})
	}
	for _, program := range programs {
		content, err := os.ReadFile(program)
		if err != nil {
			return err
		}
		entries = append(entries, ociimage.Entry{Path: path.Join(inside, filepath.Base(program)), Mode: 0o755, Content: content})
	}
	return writeImage(tarFile, reference, nil, entries...)
}

// FilesImage writes an image that has files and nothing else, such as a container disk. files
// are their contents by their paths, without a leading slash.
func FilesImage(tarFile, reference string, files map[string][]byte) error {
	var entries []ociimage.Entry
	folders := make(map[string]bool)
	for name, content := range files {
		entries = append(entries, ociimage.Entry{Path: name, Mode: 0o444, Content: content})
		for dir := path.Dir(name); dir != "." && !folders[dir]; dir = path.Dir(dir) {
			folders[dir] = true
			entries = append(entries, ociimage.Entry{Path: dir, Mode: fs.ModeDir | 0o755})
		}
	}
	return writeImage(tarFile, reference, nil, entries...)
}

func writeImage(tarFile, reference string, entrypoint []string, entries ...ociimage.Entry) error {
	layer, err := ociimage.Layer(entries)
	if err != nil {
		return err
	}
	_, err = ociimage.Write(tarFile, ociimage.Image{
		Reference: reference, Architecture: runtime.GOARCH, Layers: []v1.Layer{layer}, Config: v1.Config{Entrypoint: entrypoint},
	})
	return err
}
