package ociimage_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/vmlet/vmlet/internal/ociimage"
)

var entries = []ociimage.Entry{
	{Path: "usr/bin/tool", Mode: 0o755, ModTime: time.Unix(1700000000, 0), Content: []byte("a program")},
	{Path: "usr", Mode: fs.ModeDir | 0o755},
	{Path: "tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777},
	{Path: "bin", Mode: fs.ModeSymlink | 0o777, Target: "usr/bin"},
}

func write(t *testing.T, file, reference string) string {
	t.Helper()
	layer, err := ociimage.Layer(entries)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := ociimage.Write(file, ociimage.Image{
		Reference: reference, Architecture: "amd64", Layers: []v1.Layer{layer},
		Config: v1.Config{Entrypoint: []string{"/usr/bin/tool"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

// Both forms in the tar are read by another's code.
func TestImageIsOCIsAndDockers(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "image.tar")
	digest := write(t, file, "vmlet/tool:1")

	docker, err := tarball.ImageFromPath(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	check(t, docker)
	index, err := layout.ImageIndexFromPath(unpack(t, file, filepath.Join(dir, "layout")))
	if err != nil {
		t.Fatal(err)
	}
	list, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	oci, err := index.Image(list.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	check(t, oci)
	if got := list.Manifests[0].Digest.String(); got != digest {
		t.Errorf("the digest is %s, and Write said %s", got, digest)
	}
	if got := list.Manifests[0].Annotations["io.containerd.image.name"]; !strings.HasSuffix(got, "/vmlet/tool:1") {
		t.Errorf("the name is %q: want it written out", got)
	}
	config, err := docker.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Architecture != "amd64" || config.OS != "linux" || config.Config.Entrypoint[0] != "/usr/bin/tool" || config.Config.User != "" {
		t.Errorf("the configuration is %+v", config)
	}
}

// check fails if an image's layers aren't what its configuration says.
func check(t *testing.T, image v1.Image) {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	if len(layers) != 1 || len(config.RootFS.DiffIDs) != 1 {
		t.Fatalf("there are %d layers, and the configuration has %v", len(layers), config.RootFS.DiffIDs)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	if sum, _, err := v1.SHA256(content); err != nil || sum != config.RootFS.DiffIDs[0] {
		t.Errorf("the layer is %v (%v), and the configuration has %v", sum, err, config.RootFS.DiffIDs[0])
	}
}

func TestNameWithRegistryStays(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "image.tar")
	write(t, file, "vmlet.test/tool:2")
	index, err := os.ReadFile(filepath.Join(unpack(t, file, filepath.Join(dir, "layout")), "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(index), `"vmlet.test/tool:2"`) {
		t.Errorf("the index is %s", index)
	}
}

func TestSameFilesSameImage(t *testing.T) {
	dir := t.TempDir()
	var tars [2][]byte
	for i, name := range []string{"a.tar", "b.tar"} {
		write(t, filepath.Join(dir, name), "vmlet/tool:1")
		var err error
		if tars[i], err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(tars[0], tars[1]) {
		t.Error("two images of the same files differ")
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".image-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestLayer(t *testing.T) {
	layer, err := ociimage.Layer(entries)
	if err != nil {
		t.Fatal(err)
	}
	content, err := layer.Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	var got []string
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" {
			t.Errorf("%s belongs to %d:%d %q: want root", h.Name, h.Uid, h.Gid, h.Uname)
		}
		got = append(got, strings.Join([]string{h.FileInfo().Mode().String(), h.Name, h.Linkname}, " "))
	}
	want := "Lrwxrwxrwx bin usr/bin\ndtrwxrwxrwx tmp/ \ndrwxr-xr-x usr/ \n-rwxr-xr-x usr/bin/tool "
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("the layer has\n%s\nwant\n%s", text, want)
	}
}

func TestRefused(t *testing.T) {
	for _, path := range []string{"/usr", "../x", "a//b", "", "."} {
		if _, err := ociimage.Layer([]ociimage.Entry{{Path: path}}); err == nil {
			t.Errorf("a layer took the path %q", path)
		}
	}
	if _, err := ociimage.Layer([]ociimage.Entry{{Path: "a"}, {Path: "a"}}); err == nil {
		t.Error("a layer took one path twice")
	}
	if _, err := ociimage.Layer([]ociimage.Entry{{Path: "a", Mode: fs.ModeDevice}}); err == nil {
		t.Error("a layer took a device")
	}
	for _, reference := range []string{"", "vmlet", "Vm let:1", "vmlet:a b"} {
		if _, err := ociimage.Write(filepath.Join(t.TempDir(), "x"), ociimage.Image{Reference: reference}); err == nil {
			t.Errorf("an image was named %q", reference)
		}
	}
}

// unpack makes files of a tar's, and returns the folder.
func unpack(t *testing.T, tarFile, dir string) string {
	t.Helper()
	f, err := os.Open(tarFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(dir, h.Name)), 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, h.Name), content, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
