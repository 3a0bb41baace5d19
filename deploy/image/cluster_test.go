package main

import (
	"archive/tar"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// The cluster's image has the three programs and nothing else: no shell, no VMM.
func TestClusterImage(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"vmlet", "vmlet-agent", "vmlet-shim", "vmlet-controller", "vmlet-api", "vmlet-autopilot"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "image.tar")
	o := options{cluster: true, programs: dir, reference: "vmlet.invalid/vmlet-cluster:test", version: "test", arch: "amd64", out: file}
	if _, err := run(o); err != nil {
		t.Fatal(err)
	}
	image, err := tarball.ImageFromPath(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"/usr/local/bin/vmlet-controller"}; !slices.Equal(config.Config.Entrypoint, want) {
		t.Errorf("its entrypoint is %q, want %q", config.Config.Entrypoint, want)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, want 1: %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	got := make(map[string]string)
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeDir {
			continue
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		got[h.Name] = string(text)
	}
	want := map[string]string{
		"usr/local/bin/vmlet-controller": "vmlet-controller", "usr/local/bin/vmlet-api": "vmlet-api",
		"usr/local/bin/vmlet-autopilot": "vmlet-autopilot",
	}
	if !maps.Equal(got, want) {
		t.Errorf("it has the files %q, want %q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}

func TestClusterImageNeedsItsPrograms(t *testing.T) {
	o := options{cluster: true, programs: t.TempDir(), reference: "vmlet.invalid/vmlet-cluster:test", arch: "amd64", out: filepath.Join(t.TempDir(), "image.tar")}
	if _, err := run(o); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without programs: %v, want that there is no such file", err)
	}
}
