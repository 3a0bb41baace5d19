package main

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/vmlet/vmlet/test/chtest"
)

// standIn is a program of the administrator's that is linked statically.
func standIn(t *testing.T) string {
	t.Helper()
	path, err := chtest.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// dynamic is one that needs libraries: the real one, or any that Debian has.
func dynamic(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"cloud-hypervisor", "true"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		if f, err := elf.Open(path); err == nil {
			libraries, err := f.ImportedLibraries()
			f.Close()
			if err == nil && len(libraries) > 0 {
				return path
			}
		}
	}
	t.Skip("no program that is linked dynamically")
	return ""
}

func amd64(t *testing.T) architecture {
	t.Helper()
	a, err := architectureOf("amd64")
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// It starts with nothing but what is in the image.
func TestCloudHypervisorOfTheImageStarts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("chroot is for root")
	}
	firmware := filepath.Join(t.TempDir(), "edk2")
	if err := os.WriteFile(firmware, []byte("firmware"), 0o600); err != nil {
		t.Fatal(err)
	}
	below := distributed(t)
	for name, program := range map[string]string{"static": standIn(t), "dynamic": dynamic(t)} {
		t.Run(name, func(t *testing.T) {
			own, err := cloudHypervisor(options{packages: debian(t), cloudHypervisor: program, firmware: firmware}, amd64(t), below)
			if err != nil {
				t.Fatal(err)
			}
			root := t.TempDir()
			for _, e := range slices.Concat(below, own) {
				if err := write(filepath.Join(root, e.Path), e); err != nil {
					t.Fatal(err)
				}
			}
			// The stand-in wants to know where it is.
			self := filepath.Join(root, "proc/self")
			if err := errors.Join(os.MkdirAll(self, 0o755), os.Symlink("/"+cloudHypervisorPath, filepath.Join(self, "exe"))); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("/usr/local/bin/cloud-hypervisor", "--version")
			cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
			cmd.Dir = "/"
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			content, err := os.ReadFile(filepath.Join(root, "usr/local/share/cloud-hypervisor/CLOUDHV.fd"))
			if err != nil || string(content) != "firmware" {
				t.Errorf("its firmware: %q, %v", content, err)
			}
		})
	}
}

// Two images of the same files are the same. With cloud-hypervisor in it an image has
// one layer more, and the others as they are without.
func TestImageIsReproducible(t *testing.T) {
	packages, program := debian(t), standIn(t)
	var files [][]byte
	var with []string
	for range 2 {
		file := makeImage(t, options{packages: packages, cloudHypervisor: program})
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		files, with = append(files, content), layersIn(t, file)
		if err := os.Chtimes(program, time.Time{}, time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(files[0], files[1]) {
		t.Error("two images of the same files differ")
	}
	file := makeImage(t, options{packages: packages})
	without := layersIn(t, file)
	if len(without) != 2 || len(with) != 3 || with[0] != without[0] || with[2] != without[1] {
		t.Errorf("layers %v without it, %v with it", without, with)
	}
}

// layersIn are the names of an image's layers, which are their digests.
func layersIn(t *testing.T, file string) []string {
	t.Helper()
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(file) })
	if err != nil || len(manifest) != 1 {
		t.Fatalf("%s: %v, %v", file, manifest, err)
	}
	return manifest[0].Layers
}

// What would not start in the image is refused, with what to do.
func TestCloudHypervisorRefused(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("#!/bin/sh\nexec cloud-hypervisor\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	program := dynamic(t)
	for _, c := range []struct{ name, program, firmware, want string }{
		{"a script", text, "", text + ": bad magic number"},
		{"none", text + "2", "", "no such file"},
		{"no firmware", program, text + "2", "no such file"},
	} {
		own, err := cloudHypervisor(options{packages: debian(t), cloudHypervisor: c.program, firmware: c.firmware}, amd64(t), nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %d entries, error %v, want %q", c.name, len(own), err, c.want)
		}
	}
	if _, err := layersOf(options{packages: debian(t), firmware: text}, amd64(t)); err == nil || !strings.Contains(err.Error(), "no cloud-hypervisor") {
		t.Errorf("firmware alone: %v", err)
	}
}

func TestProgramsThatDoNotFitAreRefused(t *testing.T) {
	program := dynamic(t)
	refused := func(p *picker, machine elf.Machine, want string) {
		t.Helper()
		if err := p.bring(program, cloudHypervisorPath, machine); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	refused(newPicker(t.TempDir(), "none"), elf.EM_AARCH64, "EM_X86_64, and the image for EM_AARCH64")
	refused(newPicker(t.TempDir(), "none"), elf.EM_X86_64, "linked statically")

	// One library under the names of all, as an older system would have them.
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	loader, err := interpreter(f)
	if err != nil {
		t.Fatal(err)
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		t.Fatal(err)
	}
	debians := newPicker(filepath.Join(debian(t), "root"), amd64(t).triplet)
	old, err := debians.find("libz.so.1")
	if err == nil {
		old, err = debians.resolve(old, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(debians.path(old))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{loader: string(content)}
	for _, library := range append(libraries, "libc.so.6", filepath.Base(loader)) {
		files["lib/"+library] = string(content)
	}
	refused(newPicker(tree(t, files), "none"), elf.EM_X86_64, "which the image's is too old for")
}
